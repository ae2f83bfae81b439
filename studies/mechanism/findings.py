"""Findings: which detector fired in which faulty run, how long before its loss left the twin's, false alarms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors import Detector, make_detector
from rmetric.episodes import episodes
from rmetric.evaluation.ground_truth import judge
from rmetric.evaluation.protocols import HEALTHY, Starts, Timeline
from rmetric.evaluation.scores import DRAWS, Score, percentile_interval, poisson_upper
from rmetric.evaluation.scoring import by_run, score_study
from rmetric.evaluation.studies import Study
from rmetric.evaluation.thresholds import BUDGET_PER_STEP, lowest_within_budget
from rmetric.faults import NO_FAULT
from rmetric.records import Run
from rmetric.streams import stable_hash

NEVER, UNMEASURED = "—", "·"


WINDOW = 20
"""Steps of the moving mean of the training loss."""


def smoothed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Moving mean over :data:`WINDOW` values, fewer at the beginning; shape (n,). Non-finite values spread over it.

    >>> smoothed(np.array([1.0, 3.0, 5.0, 7.0])).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    ends = np.arange(1, len(values) + 1)
    return np.array([values[max(0, end - WINDOW) : end].mean() for end in ends.tolist()])


def training_departure(run: Run, twin: Run) -> int | None:
    """First step from which the smoothed training loss stays more than 5 % above the twin's; ``None`` if it never does.

    Both saw the same batches, so the difference has little noise. As of the held-out loss, what begins in the last 50
    steps is undecided and no departure, and what a run did not live to see is one.
    """
    steps = twin.observations.step
    own = np.full(len(steps), np.inf)
    losses = run.observations["training_loss"]
    own[: len(losses)] = losses
    twins = twin.observations["training_loss"]
    outcome = judge(smoothed(own), smoothed(twins), steps)
    return outcome.failure_step


def left_out_thresholds(timeline: Timeline, starts: Starts, repetition: NDArray[np.int64]) -> dict[int, float]:
    """Repetition (a seed of every group) → threshold fitted on all the others."""
    fitted = {}
    for left_out in np.unique(repetition).tolist():
        others = repetition != left_out
        steps = float(timeline.healthy_steps[others].sum())
        fitted[left_out] = lowest_within_budget(starts, steps, others)
    return fitted


def false_alarms(starts: Starts, thresholds: Mapping[int, float], repetition: NDArray[np.int64]) -> int:
    """Alert episodes that begin in healthy steps, each run judged by the threshold of its repetition."""
    limit = np.array([thresholds[int(number)] for number in repetition], dtype=np.float64)[starts.run]
    return int((starts.at(limit) & (starts.zone == HEALTHY)).sum())


MECHANISM_DETECTORS = (
    "qk_entropy", "qk_spectral_norm", "attention_entropy", "query_key_norms", "router_collapse", "update_max",
    "alignment",
)  # fmt: skip
"""They read what the mechanism monitors measure."""
USUAL_DETECTORS = ("loss_spike", "grad_norm", "numerics", "update_rms_threshold", "robust_z", "r_metric_robust")
"""For comparison: they read what any run logs."""
Kind = Literal["fitted", "default"]
HOW: dict[Kind, str] = {
    "fitted": (
        "Each seed is judged by thresholds fitted on the healthy steps of all other seeds: the lowest from which on "
        f"false alarms keep the budget of one per {1 / BUDGET_PER_STEP:,.0f} healthy steps."
    ),
    "default": "Thresholds are the detectors' defaults; nothing is fitted.",
}
KINDS: tuple[Kind, ...] = ("fitted", "default")
NEVER_LEFT = "the loss did not leave its twin's"
SILENT = "it fired in no run whose loss left its twin's"


@dataclass(frozen=True, order=True)
class Case:
    """A fault at a strength, in one model at one batch size."""

    fault: str
    model: str
    rows: int
    strength: str


@dataclass(frozen=True)
class FalseAlarms:
    """False alarms in distinct healthy steps."""

    episodes: int
    steps: int

    @property
    def per_1000(self) -> float:
        """Episodes per 1,000 healthy steps."""
        return 1000.0 * self.episodes / self.steps

    @property
    def upper_bound(self) -> float:
        """Exact one-sided 95 % bound of :attr:`per_1000`."""
        return 1000.0 * poisson_upper(self.episodes) / self.steps


@dataclass(frozen=True)
class Signature:
    """Result of one detector in one case."""

    fired: int
    """Seeds in which an alert episode began at the onset or later."""
    seeds: int
    """Seeds in which the detector judged a record from the onset on."""
    lead: Score
    """Median steps from that alarm to the departure of the held-out loss, over the seeds that have both; negative: the
    alarm came later. In brackets: bootstrap over seeds."""
    training_lead: Score
    """The same to the departure of the smoothed training loss."""


class MechanismResults:
    """The logs of a mechanism study, scored."""

    def __init__(self, study: Study, scores: dict[str, list[NDArray[np.float64]]], *, draws: int = DRAWS) -> None:
        self.study, self.scores, self.draws = study, scores, draws
        self.runs, self.truths = study.runs, study.truths
        self.timeline = Timeline.of(study.runs)
        self.repetition = np.array([int(run.config["repetition"]) for run in study.runs], dtype=np.int64)
        self.detectors: dict[str, Detector] = {name: make_detector(name) for name in scores}
        self._signatures: dict[tuple[Case, str, Kind], Signature] = {}

    @classmethod
    def of(cls, study: Study, *, jobs: int | None = None, draws: int = DRAWS) -> MechanismResults:
        """Score the logs of a study with all detectors of the comparison."""
        detectors = {name: make_detector(name) for name in (*MECHANISM_DETECTORS, *USUAL_DETECTORS)}
        scores = score_study(study, detectors, jobs=jobs)
        return cls(study, {name: by_run(study, values) for name, values in scores.items()}, draws=draws)

    @cached_property
    def cases(self) -> dict[Case, list[int]]:
        """Case → its runs, one a seed, in the order of the plan; the healthy twins last.

        A twin is judged from the onset of its forks on: how often a detector fires in as many healthy steps.
        """
        found: dict[Case, list[int]] = {}
        for index in sorted(range(len(self.runs)), key=lambda index: self.runs[index].is_control):
            run = self.runs[index]
            if not run.is_control or run.name in self._onset_of_forks:
                strength = run.severity if not run.is_control else "healthy twin"
                case = Case(run.fault, run.model_type, int(run.config["batch_size"]), strength)
                found.setdefault(case, []).append(index)
        return found

    @cached_property
    def _onset_of_forks(self) -> dict[str, int]:
        """Name of a twin → the step at which its forks were disturbed."""
        return {
            str(run.config["twin"]): truth.onset
            for run, truth in zip(self.runs, self.truths, strict=True)
            if not run.is_control and truth.onset is not None
        }

    @cached_property
    def faulty_cases(self) -> dict[Case, list[int]]:
        """:attr:`cases` without the twins."""
        return {case: indices for case, indices in self.cases.items() if case.fault != NO_FAULT}

    @cached_property
    def twins(self) -> dict[str, int]:
        """Name of a healthy twin → its run."""
        return {run.name: index for index, run in enumerate(self.runs) if run.is_control}

    def twin_of(self, index: int) -> Run:
        """The healthy twin of a run; a twin is its own."""
        if self.runs[index].is_control:
            return self.runs[index]
        return self.runs[self.twins[str(self.runs[index].config["twin"])]]

    @cached_property
    def healthy_steps(self) -> int:
        """Distinct ones, each counted once: those of the twins, which the forks share up to their onset."""
        return int(self.timeline.healthy_steps.sum())

    @cached_property
    def departures(self) -> dict[int, tuple[int | None, int | None]]:
        """Run → step at which its held-out loss, and its smoothed training loss, leaves the twin's for good."""
        return {
            index: (self.truths[index].failure_step, training_departure(self.runs[index], self.twin_of(index)))
            for indices in self.cases.values()
            for index in indices
        }

    @cached_property
    def starts(self) -> dict[str, Starts]:
        """Begins of the episodes of each detector, for all thresholds."""
        return {name: self.timeline.starts(np.concatenate(scores)) for name, scores in self.scores.items()}

    @cached_property
    def fitted(self) -> dict[str, dict[int, float]]:
        """Detector → repetition → threshold that keeps the budget on the healthy steps of all other seeds."""
        return {
            name: left_out_thresholds(self.timeline, starts, self.repetition) for name, starts in self.starts.items()
        }

    def thresholds(self, detector: str, kind: Kind) -> dict[int, float]:
        """Repetition → the threshold that its runs are judged by."""
        if kind == "fitted":
            return self.fitted[detector]
        return {int(number): self.detectors[detector].threshold for number in np.unique(self.repetition)}

    def false_alarms(self, detector: str, kind: Kind) -> FalseAlarms:
        """Count in all healthy steps of all seeds; fitted thresholds come from seeds other than the judged one."""
        limits = self.thresholds(detector, kind)
        return FalseAlarms(false_alarms(self.starts[detector], limits, self.repetition), self.healthy_steps)

    def first_alarm(self, index: int, detector: str, kind: Kind) -> int | None:
        """Step of the first alert episode of a run that begins at the onset or later."""
        steps, scores = self.runs[index].observations.step, self.scores[detector][index]
        threshold = self.thresholds(detector, kind)[int(self.repetition[index])]
        begun = steps[episodes(steps, scores > threshold)]
        later = begun[begun >= self._onset(index)]
        return int(later[0]) if len(later) else None

    def judged(self, index: int, detector: str) -> bool:
        """Whether the detector gave a score at the onset or later."""
        after = self.runs[index].observations.step >= self._onset(index)
        return not bool(np.isnan(self.scores[detector][index][after]).all())

    def signature(self, case: Case, detector: str, kind: Kind) -> Signature:
        key = (case, detector, kind)
        if key not in self._signatures:
            self._signatures[key] = self._signature(*key)
        return self._signatures[key]

    def _signature(self, case: Case, detector: str, kind: Kind) -> Signature:
        indices = [index for index in self.cases[case] if self.judged(index, detector)]
        alarms = {index: self.first_alarm(index, detector, kind) for index in indices}
        leads = [self._lead(case, detector, alarms, place) for place in (0, 1)]
        return Signature(sum(step is not None for step in alarms.values()), len(indices), *leads)

    def incubation(self, case: Case, place: int = 0) -> Score:
        """Median steps from the onset to the departure, over the seeds whose loss left."""
        steps = [self.departures[index][place] for index in self.cases[case]]
        known = [
            step - self._onset(index) for index, step in zip(self.cases[case], steps, strict=True) if step is not None
        ]
        return self._median(known, f"{case}/incubation/{place}", NEVER_LEFT)

    def left(self, case: Case, place: int = 0) -> int:
        """Seeds whose loss left the twin's for good: held-out (0) or smoothed training loss (1)."""
        return sum(self.departures[index][place] is not None for index in self.cases[case])

    def _lead(self, case: Case, detector: str, alarms: dict[int, int | None], place: int) -> Score:
        pairs = [(self.departures[index][place], alarm) for index, alarm in alarms.items()]
        known = [left - alarm for left, alarm in pairs if left is not None and alarm is not None]
        reason = SILENT if any(left is not None for left, _ in pairs) else NEVER_LEFT
        return self._median(known, f"{case}/{detector}/{place}", reason)

    def _median(self, values: Sequence[float], key: str, reason: str) -> Score:
        if not values:
            return Score.undefined(reason)
        if len(values) == 1:
            return Score(float(values[0]))
        seeds = np.random.default_rng(stable_hash(key)).integers(len(values), size=(self.draws, len(values)))
        drawn = np.median(np.asarray(values, dtype=np.float64)[seeds], axis=1)
        return Score(float(np.median(values)), *percentile_interval(drawn))

    def _onset(self, index: int) -> float:
        onset = self.truths[index].onset
        return self._onset_of_forks.get(self.runs[index].name, math.inf) if onset is None else onset
