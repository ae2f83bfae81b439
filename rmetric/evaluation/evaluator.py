"""Answers about one study, all detectors and both protocols, for tables and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors import DETECTORS, ROBUST, Detector, detectors_everywhere, make_detector
from rmetric.detectors.paper_baselines import DeltaLOnly, LambdaOnly, SigmaSqOnly
from rmetric.evaluation.cache import Latest
from rmetric.evaluation.curves import Curve, curve_of, paper_curve, strict_curve
from rmetric.evaluation.protocols import Counts, Protocol, Starts, Timeline
from rmetric.evaluation.scores import DRAWS, BootstrapWeights, Score, difference, resample_of, score, summarise
from rmetric.evaluation.scoring import Scores, score_study
from rmetric.evaluation.split import Halves, folds, halves
from rmetric.evaluation.studies import Study
from rmetric.evaluation.thresholds import (
    keeps_its_threshold,
    threshold_for_budget,
    threshold_for_f1,
    threshold_within_budget,
)
from rmetric.evaluation.weights import Fitted, fit_weights
from rmetric.metric import RMetric
from rmetric.signals import Weights

REFERENCE = "r_metric"
"""The detector that all others are compared with."""
PAPER_THRESHOLDS = (0.55, 0.56, 0.57, 0.60, 0.65)
"""Thresholds that occur in the authors' files and their history."""
MOST_TRACED = 1440
"""Runs on whose every record weights are tried: twice the study of the paper."""
LABELS = ("fault", "severity", "model_type")
ALL: NDArray[np.bool_] | None = None
"""All runs."""
NO_RECORD = Score.undefined("it scores no record of these logs")
"""Any score of a detector that judges nothing: it is not quiet."""


def _bytes_of(columns: object) -> int:
    return sum(column.nbytes for column in vars(columns).values() if isinstance(column, np.ndarray))


@dataclass(frozen=True)
class Budgeted:
    """A detector at a threshold that keeps a false-alarm budget on the fit half, scored on the other half.

    One that was fitted to that very half keeps the threshold of its settings.
    """

    threshold: float
    counts: Counts | None
    """Counts of the score half; ``None`` if nothing could be fitted."""
    reason: str = ""
    """Why nothing could be fitted."""
    of_settings: bool = False
    """Whether the threshold is that of the detector's settings."""


@dataclass(frozen=True)
class _Weighed:
    """R with other weights, of as many records as are asked for."""

    weights: Weights
    signals: Sequence[Scores]

    def __getitem__(self, rows: slice) -> NDArray[np.float64]:
        return self.weights.weigh(*(np.nan_to_num(signal[rows], nan=0.0) for signal in self.signals))


class Evaluator:
    """Answers about detectors on a study; everything that is asked twice is computed once.

    Parameters
    ----------
    detectors
        Name → detector; the reference comes first in every answer.
    scores
        Name → scores of all records, from :func:`rmetric.evaluation.scoring.score_study`.
    signals_3N
        Normalised λ, σ² and ΔL of all records; NaN, not measured, counts for nothing in R.
    jobs
        Processes of answers that need another pass over all records; as many as there are cores if left out.
    skipped
        Registered detectors that were left out, for no log has anything that they read.
    """

    def __init__(
        self,
        study: Study,
        detectors: Mapping[str, Detector],
        scores: Mapping[str, Scores],
        signals_3N: Sequence[Scores],
        *,
        draws: int = DRAWS,
        seed: int = 0,
        jobs: int | None = None,
        skipped: Sequence[str] = (),
    ) -> None:
        self.skipped = tuple(skipped)
        self.study, self.scores, self.signals_3N = study, dict(scores), tuple(signals_3N)
        first = [name for name in detectors if name == REFERENCE]
        self.detectors = {name: detectors[name] for name in (*first, *detectors)}
        self.draws, self.seed, self.jobs = draws, seed, jobs
        self.timeline = Timeline.of(study.runs)
        self._starts = Latest[str, Starts](_bytes_of)
        self._weights = Latest[bytes, BootstrapWeights](lambda weights: weights.nbytes)
        self._counts = Latest[tuple[object, Protocol, float], Counts](_bytes_of)
        self._fits: dict[tuple[bytes, Protocol], Fitted | None] = {}

    @classmethod
    def of(
        cls,
        study: Study,
        names: Sequence[str] | None = None,
        *,
        among: Sequence[str] | None = None,
        cache: str | Path | None = None,
        jobs: int | None = None,
        plugins: Sequence[str | Path] = (),
        draws: int = DRAWS,
        seed: int = 0,
    ) -> Evaluator:
        """Score a study with detectors by name, each at its published setting.

        Without names: those ``among`` which read something that any log has; if not given, among all that need no
        extra of this package, so that the answers do not depend on what else is installed.
        """
        asked = names or among or detectors_everywhere()
        skipped = () if names else tuple(name for name in asked if name != REFERENCE and not _can_read(name, study))
        detectors = {name: make_detector(name) for name in asked if name not in skipped}
        window = RMetric.paper().window
        alone = {kind.name: kind(window=window) for kind in (LambdaOnly, SigmaSqOnly, DeltaLOnly)}
        scores = score_study(study, {**detectors, **alone}, cache=cache, jobs=jobs, plugins=plugins)
        signals_3N = [scores.pop(name) if name not in detectors else scores[name] for name in alone]
        return cls(study, detectors, scores, signals_3N, draws=draws, seed=seed, jobs=jobs, skipped=skipped)

    # -- runs ---------------------------------------------------------------------------------------------------------

    @cached_property
    def halves(self) -> Halves:
        """Fit half and score half."""
        return halves(self.study.runs)

    @cached_property
    def step_time_s(self) -> NDArray[np.float64]:
        """Seconds a step of each run, as planned in its ``config`` or else as measured; NaN if neither is logged."""
        times = []
        for run in self.study.runs:
            planned = run.config.get("step_time_s")
            if isinstance(planned, int | float) and planned > 0:
                times.append(float(planned))
            else:
                times.append(_finite_mean(run.observations["step_time_s"]))
        return np.array(times, dtype=np.float64)

    def runs_where(self, **wanted: str) -> NDArray[np.bool_]:
        """Runs by ``fault``, ``severity`` or ``model_type``, shape (runs,)."""
        chosen = np.ones(len(self.timeline), bool)
        for key, value in wanted.items():
            chosen &= self._labels[key] == value
        return chosen

    @cached_property
    def _labels(self) -> dict[str, NDArray[np.str_]]:
        found = [(run.fault, run.severity, run.model_type) for run in self.study.runs]
        columns = zip(*found, strict=True) if found else ((), (), ())
        return {key: np.array(column, np.str_) for key, column in zip(LABELS, columns, strict=True)}

    @cached_property
    def traced(self) -> NDArray[np.bool_]:
        """Runs whose every record is weighed when weights are fitted, shape (runs,): all, or some groups of one seed.

        Of a study with more than :data:`MOST_TRACED` runs, every k-th group of runs that share model and seed, in the
        order of the logs; k is the smallest odd number that leaves no more: repetitions alternate between the halves.
        """
        runs = len(self.timeline)
        every = -(-runs // MOST_TRACED) | 1
        return folds(self.study.runs, every) == 0 if every > 1 else np.ones(runs, bool)

    def weights(self, runs_R: NDArray[np.bool_]) -> BootstrapWeights:
        """Bootstrap weights of some runs, shape (draws, chosen runs); the same for all detectors, so that they pair."""
        key = np.packbits(runs_R).tobytes()
        return self._weights.get(key, lambda: resample_of(runs_R, self.draws, self.seed))

    # -- detectors ----------------------------------------------------------------------------------------------------

    def starts(self, name: str) -> Starts:
        """Begins of a detector's episodes, for all thresholds."""
        return self._starts.get(name, lambda: self.timeline.starts(self.scores[name]))

    def counts(self, name: str, protocol: Protocol, threshold: float | None = None) -> Counts:
        """Counts of all runs, at the detector's published threshold or another one."""
        limit = self.detectors[name].threshold if threshold is None else threshold

        def counted() -> Counts:
            if protocol == "strict":
                return self.timeline.count_strict(self.starts(name), limit)
            return self.timeline.count(protocol, self.scores[name], limit)

        return self._counts.get((name, protocol, limit), counted)

    def lacking(self, name: str) -> dict[str, int]:
        """Measurement that a detector reads → number of runs that lack it (:meth:`Detector.missing`), if any does."""
        lacking: Counter[str] = Counter()
        for measured, runs in self.study.measured.items():
            lacking.update(dict.fromkeys(self.detectors[name].missing(measured), runs))
        return dict(lacking)

    @cached_property
    def silent(self) -> frozenset[str]:
        """Detectors that score no record at all (:data:`NO_RECORD`)."""
        blocks = [rows for _, _, rows in self.timeline.blocks()]
        return frozenset(
            name for name, scores in self.scores.items() if all(np.isnan(scores[rows]).all() for rows in blocks)
        )

    def range_of(self, name: str) -> tuple[float, float]:
        """Smallest and largest finite score of a detector; NaN without one."""
        low, high = np.inf, -np.inf
        for _, _, rows in self.timeline.blocks():
            values = self.scores[name][rows]
            values = values[np.isfinite(values)]
            low, high = min(low, values.min(initial=np.inf)), max(high, values.max(initial=-np.inf))
        return (float(low), float(high)) if low <= high else (np.nan, np.nan)

    def summary(
        self,
        name: str,
        protocol: Protocol,
        threshold: float | None = None,
        runs_R: NDArray[np.bool_] | None = ALL,
    ) -> dict[str, Score]:
        """All scores of a detector with bootstrap intervals over the counted ones of these runs.

        All are undefined where it judges nothing.
        """
        summary = self.summary_of(self.counts(name, protocol, threshold), runs_R)
        return dict.fromkeys(summary, NO_RECORD) if name in self.silent else summary

    def summary_of(self, counts: Counts, runs_R: NDArray[np.bool_] | None = ALL) -> dict[str, Score]:
        """Scores as of :meth:`summary`, from any counts of all runs; adds ``lead_min``, the mean lead in minutes."""
        chosen = counts.counted if runs_R is None else counts.counted & runs_R
        part, weights_BR = counts.of(chosen), self.weights(chosen)
        summary = summarise(part, weights_BR)
        minutes = Counts(**{**vars(part), "lead": part.lead * self.step_time_s[chosen] / 60.0})
        if not summary["mean_lead"].defined:
            summary["lead_min"] = summary["mean_lead"]
        elif np.isnan(minutes.lead[minutes.tp > 0]).any():
            summary["lead_min"] = Score.undefined("the logs do not say how long a step takes")
        else:
            summary["lead_min"] = score("mean_lead", minutes, weights_BR)
        return summary

    def score_of(self, name: str, counts: Counts, runs_R: NDArray[np.bool_] | None = ALL) -> Score:
        """One of :data:`~rmetric.evaluation.scores.METRICS`, as :meth:`summary_of` has it among all others."""
        chosen = counts.counted if runs_R is None else counts.counted & runs_R
        return score(name, counts.of(chosen), self.weights(chosen))

    def compare(
        self,
        name: str,
        counts: Counts,
        other: Counts,
        runs_R: NDArray[np.bool_] | None = ALL,
        *,
        relative: bool = False,
    ) -> Score:
        """Paired bootstrap of a score's difference over the runs that both count."""
        chosen = counts.counted & other.counted if runs_R is None else counts.counted & other.counted & runs_R
        return difference(name, counts.of(chosen), other.of(chosen), self.weights(chosen), relative=relative)

    def curve(self, name: str, protocol: Protocol, runs_R: NDArray[np.bool_] | None = ALL) -> Curve:
        """Every threshold at once: precision–recall (both protocols), ROC (paper), free-response ROC (strict)."""
        if protocol == "strict":
            return strict_curve(self.timeline, self.starts(name), runs_R)
        return paper_curve(self.timeline, self.scores[name], runs_R)

    @cached_property
    def warnable(self) -> int:
        """Failed runs with a record in [onset, failure): nobody could warn the others (strict)."""
        return int(self.timeline.warnable.sum())

    def budgeted(self, name: str) -> Budgeted:
        """The detector at its threshold of highest recall within the false-alarm budget on the fit half (strict)."""
        return self._fitted(name, threshold_for_budget)

    def within_budget(self, name: str) -> Budgeted:
        """The detector at its threshold of highest F1 within the false-alarm budget on the fit half (strict)."""
        return self._fitted(name, threshold_within_budget)

    def _fitted(self, name: str, rule: Callable[[Curve], float]) -> Budgeted:
        """The detector at the threshold that a rule chooses on the fit half, unless it was fitted to that half."""
        detector = self.detectors[name]
        if name in self.silent:
            return Budgeted(np.nan, None, NO_RECORD.reason)
        of_settings = keeps_its_threshold(detector, self.study.backends)
        threshold = detector.threshold if of_settings else rule(self.curve(name, "strict", self.halves.fit))
        if np.isnan(threshold):
            return Budgeted(threshold, None, "no run of the fit half failed, or no threshold keeps the budget on it")
        counts = self.counts(name, "strict", threshold)
        if not counts.counted[self.halves.score].any():
            return Budgeted(threshold, None, "the score half is empty")
        return Budgeted(threshold, counts, of_settings=of_settings)

    def best_baseline(self, protocol: Protocol) -> str | None:
        """The causal detector that is no R-Metric with the highest F1 at its published threshold."""
        f1: dict[str, float] = {}
        for name, detector in self.detectors.items():
            if name not in (REFERENCE, ROBUST, *self.silent) and detector.causal and not detector.extra:
                counts = self.counts(name, protocol)
                f1[name] = score("f1", counts.of(counts.counted)).value
        defined = {name: value for name, value in f1.items() if not np.isnan(value)}
        return max(defined, key=defined.__getitem__, default=None)

    # -- the R-Metric's weights ---------------------------------------------------------------------------------------

    def counts_with(self, weights: Weights, threshold: float, protocol: Protocol) -> Counts:
        """The R-Metric with other weights."""
        key = (weights, protocol, threshold)
        return self._counts.get(
            key, lambda: self.timeline.count(protocol, _Weighed(weights, self.signals_3N), threshold)
        )

    def fit(self, runs_R: NDArray[np.bool_], protocol: Protocol) -> Fitted | None:
        """Weights and threshold of highest F1 on the traced fit half of these runs; ``None`` if none of them failed."""
        key = (np.packbits(runs_R).tobytes(), protocol)
        if key not in self._fits:
            part, signals_3N = self.traces(runs_R & self.halves.fit)
            self._fits[key] = fit_weights(part, signals_3N, protocol, jobs=self.jobs)
        return self._fits[key]

    def traces(self, runs_R: NDArray[np.bool_]) -> tuple[Timeline, NDArray[np.float64]]:
        """Timeline and signals, shape (3, records), of those of these runs that are :attr:`traced`."""
        chosen = runs_R & self.traced
        part, kept_N = self.timeline.only(chosen)
        blocks = [rows for _, _, rows in self.timeline.blocks()]
        signals_3N = [np.concatenate([signal[rows][kept_N[rows]] for rows in blocks]) for signal in self.signals_3N]
        return part, np.nan_to_num(np.stack(signals_3N), nan=0.0)

    def refitted_threshold(self, weights: Weights, protocol: Protocol) -> float:
        """Threshold of highest F1 on the traced fit half for given weights; NaN if no run of it failed."""
        part, signals_3N = self._traced_fit_half
        return threshold_for_f1(curve_of(part, weights.weigh(*signals_3N), protocol))

    @cached_property
    def _traced_fit_half(self) -> tuple[Timeline, NDArray[np.float64]]:
        return self.traces(self.halves.fit)


def _can_read(name: str, study: Study) -> bool:
    """True if some log has something that a registered detector reads."""
    return any(signal in measured for signal in DETECTORS[name].reads for measured in study.measured)


def _finite_mean(values: NDArray[np.float64]) -> float:
    """NaN without a finite value."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else np.nan
