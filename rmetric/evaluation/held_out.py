"""Scores of all causal detectors at one false-alarm budget: fitted on the fit half, scored where nothing was fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors import ROBUST
from rmetric.evaluation.evaluator import ALL, Evaluator
from rmetric.evaluation.protocols import WARNING, Counts
from rmetric.evaluation.scores import Score, false_alarm_bound
from rmetric.evaluation.visibility import visible_from

REFERENCES = (ROBUST, "robust_z")
"""The first of them that is there is what the others are compared with."""
ORACLE = "oracle"
"""It knows the onset."""
VISIBILITY_BOUND = "visibility_bound"
"""It knows the twin, and alarms where the fault begins to show."""
SECOND_INCIDENT_BOUND = "visibility_bound, second incident"
"""The same, and one hardware event or slow step, such as healthy machines have, is no sign yet."""
BOUNDS = (SECOND_INCIDENT_BOUND, VISIBILITY_BOUND, ORACLE)
SCORES = ("f1", "recall", "precision", "mean_share", "mean_share_warned", "mean_lead", "false_alarms_per_1000")


@dataclass(frozen=True)
class HeldOut:
    """One detector at its fitted threshold, over the runs it is scored on."""

    name: str
    threshold: Score
    scores: dict[str, Score]
    """Scores by name: :data:`SCORES` and ``upper_bound``, the exact 95 % bound of ``false_alarms_per_1000``."""
    false_alarms: int | None
    less_reference: Score | None
    """F1 less the reference's, paired bootstrap; ``None`` for the reference itself."""
    counts: Counts | None = field(repr=False, default=None)


def reference_of(ev: Evaluator) -> str | None:
    """The detector that others are compared with at the budget."""
    return next((name for name in REFERENCES if name in ev.detectors), None)


def causal(ev: Evaluator) -> list[str]:
    """Detectors that an operator could have had, the reference first."""
    first = reference_of(ev)
    names = [name for name, detector in ev.detectors.items() if detector.causal and name != first]
    return [*([first] if first else []), *names]


def oracle(ev: Evaluator) -> Counts:
    """One alarm in the first record from the onset on, in failed runs alone: nobody can do better."""
    return ev.timeline.count("strict", ev.timeline.zone == WARNING, 0.5)


def visibility_bound(ev: Evaluator, incidents: int = 1) -> Counts | None:
    """One alarm where a fault begins to show, in failed runs alone; ``None`` if no failed run's twin is there.

    ``incidents``: as for :func:`rmetric.evaluation.visibility.visible_from`.
    """
    scores = visible_from(ev.timeline, ev.study.runs, incidents)
    return ev.timeline.count("strict", scores, 0.5) if scores.any() else None


def held_out(ev: Evaluator) -> list[HeldOut]:
    """Causal detectors on the score half, the reference first, then by F1; last those that know too much."""
    thresholds = {name: _threshold(ev, name) for name in causal(ev)}
    return [*_ranked(ev, at_thresholds(ev, thresholds, ev.halves.score)), *_bounds(ev, ev.halves.score)]


def moved(ev: Evaluator, target: Evaluator) -> list[HeldOut]:
    """The same with the thresholds of ``ev`` and all runs of ``target``."""
    thresholds = {name: _threshold(ev, name) for name in causal(ev) if name in target.detectors}
    return [*_ranked(target, at_thresholds(target, thresholds, ALL)), *_bounds(target, ALL)]


def at_thresholds(ev: Evaluator, thresholds: dict[str, Score], runs_R: NDArray[np.bool_] | None) -> list[HeldOut]:
    """Detectors at given thresholds, strict, over some runs; compared with the first of :data:`REFERENCES`."""
    counts = {
        name: ev.counts(name, "strict", limit.value) if limit.defined else None for name, limit in thresholds.items()
    }
    first = reference_of(ev)
    return [
        scored(ev, name, limit, counts[name], counts.get(first) if first else None, runs_R)
        for name, limit in thresholds.items()
    ]


def _threshold(ev: Evaluator, name: str) -> Score:
    fitted = ev.within_budget(name)
    return Score.undefined(fitted.reason) if np.isnan(fitted.threshold) else Score(fitted.threshold)


def scored(
    ev: Evaluator,
    name: str,
    threshold: Score,
    counts: Counts | None,
    reference: Counts | None,
    runs_R: NDArray[np.bool_] | None,
) -> HeldOut:
    """All scores of some counts over some runs, and the difference of F1 to another's."""
    less = None
    if name != reference_of(ev):
        reason = threshold.reason or "the detector to compare with has no fitted threshold"
        both = counts is not None and reference is not None
        less = ev.compare("f1", counts, reference, runs_R) if both else Score.undefined(reason)  # type: ignore[arg-type]
    if counts is None:
        nothing = Score.undefined(threshold.reason)
        return HeldOut(name, threshold, dict.fromkeys((*SCORES, "upper_bound"), nothing), None, less)
    chosen = counts.counted if runs_R is None else counts.counted & runs_R
    summary = ev.summary_of(counts, runs_R)
    scores = {key: summary[key] for key in SCORES} | {"upper_bound": false_alarm_bound(counts.of(chosen))}
    return HeldOut(name, threshold, scores, int(counts.fp[chosen].sum()), less, counts)


def _bounds(ev: Evaluator, runs_R: NDArray[np.bool_] | None) -> list[HeldOut]:
    known = {SECOND_INCIDENT_BOUND: visibility_bound(ev, incidents=2), VISIBILITY_BOUND: visibility_bound(ev)}
    found = [
        scored(ev, name, Score.undefined("it knows the twin"), signs, None, runs_R)
        for name, signs in known.items()
        if signs is not None
    ]
    found.append(scored(ev, ORACLE, Score.undefined("it knows the onset"), oracle(ev), None, runs_R))
    return [replace(item, less_reference=None) for item in found]


def _ranked(ev: Evaluator, found: Sequence[HeldOut]) -> list[HeldOut]:
    """The reference first, then by F1, what is undefined last."""
    first = reference_of(ev)

    def rank(item: HeldOut) -> tuple[bool, float]:
        f1 = item.scores["f1"]
        return item.name != first, -f1.value if f1.defined else 1.0

    return sorted(found, key=rank)


def kinds_of(ev: Evaluator) -> dict[str, NDArray[np.bool_]]:
    """Model and optimizer → its runs, shape (runs,), in the order of the logs."""
    labels = np.array([f"{run.model_type}, {run.config.get('optimizer', '?')}" for run in ev.study.runs])
    return {label: labels == label for label in dict.fromkeys(labels.tolist())}


def unseen_faults(ev: Evaluator, target: Evaluator) -> list[str]:
    """Faults of the target that no run of the source has."""
    seen = {run.fault for run in ev.study.runs}
    return list(dict.fromkeys(run.fault for run in target.study.runs if run.fault not in seen))


def runs_with(ev: Evaluator, faults: Sequence[str]) -> NDArray[np.bool_]:
    """Runs with one of these faults, shape (runs,)."""
    return np.array([run.fault in faults for run in ev.study.runs], dtype=bool)
