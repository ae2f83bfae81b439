"""The choice of a threshold, on the runs that are given: the fit half, never the one that is scored.

| rule                            | the threshold                                   | used for                |
|---------------------------------|-------------------------------------------------|-------------------------|
| :func:`threshold_for_budget`    | of highest recall within the false-alarm budget | recall at the budget    |
| :func:`threshold_within_budget` | of highest F1 within the budget                 | all detectors, fitted   |
| :func:`threshold_for_f1`        | of highest F1                                   | weights of the R-Metric |
| :func:`lowest_within_budget`    | lowest that keeps the budget; looks at no fault | robust, mechanism       |

A detector that was fitted to the very runs keeps its own threshold (:func:`keeps_its_threshold`).
"""

from __future__ import annotations

import math
from collections.abc import Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors import Detector
from rmetric.evaluation.curves import Curve, covered
from rmetric.evaluation.protocols import HEALTHY, Starts

BUDGET_PER_STEP = 1e-4
"""One false alarm per 10,000 healthy steps."""


def keeps_its_threshold(detector: Detector, backends: Set[str]) -> bool:
    """Return whether a detector was calibrated on runs of these backends, within the budget.

    Scores that were fitted to the same runs are too low on them: another threshold would be fitted too low as well.
    """
    return backends == {detector.calibrated_on}


def threshold_for_budget(curve: Curve, budget_per_step: float = BUDGET_PER_STEP) -> float:
    """The threshold with the highest recall among those that keep the false alarms within the budget.

    Parameters
    ----------
    curve
        Strict, of the fit half.

    Returns
    -------
    float
        The middle of the best stretch of thresholds, the highest stretch at a tie; NaN if the curve has no failed run
        or no healthy step, or no threshold keeps the budget.
    """
    return _middle_of_best(curve, _within(curve, curve.tp, budget_per_step))


def threshold_within_budget(curve: Curve, budget_per_step: float = BUDGET_PER_STEP) -> float:
    """The threshold with the highest F1 among those that keep the false alarms within the budget.

    :func:`threshold_for_budget` spends the budget to the last false alarm wherever that warns one more run. Where
    healthy steps are many and failures few, most of those false alarms are not worth it; this one stops before.

    Returns
    -------
    float
        The lowest of the best: as many runs are warned by a higher one, but later. NaN as above.
    """
    merit = _within(curve, curve.f1, budget_per_step)
    return _finite(curve, int(np.argmax(merit))) if merit.max(initial=-1.0) >= 0.0 else math.nan


def threshold_for_f1(curve: Curve) -> float:
    """The threshold with the highest F1, as :func:`threshold_for_budget` otherwise."""
    return _middle_of_best(curve, curve.f1) if curve.failed else math.nan


def lowest_within_budget(
    starts: Starts, healthy_steps: float, runs: NDArray[np.bool_], budget_per_step: float = BUDGET_PER_STEP
) -> float:
    """The lowest threshold from which on false alarms keep the budget.

    Nothing but healthy steps is looked at: no fault, known or unknown, has a part in it.

    Parameters
    ----------
    starts
        Of a detector, from :meth:`rmetric.evaluation.protocols.Timeline.starts`.
    healthy_steps
        Distinct ones of these runs.
    runs
        Which runs to look at, shape (runs,).
    budget_per_step
        False alarms a healthy step. With fewer than 1 / budget steps, none is allowed.

    Returns
    -------
    float
        NaN if the detector judged no healthy step of these runs; infinite if only that silences it.
    """
    judged = (starts.zone == HEALTHY) & runs[starts.run] & (starts.high > -math.inf)
    if not healthy_steps or not judged.any():
        return math.nan
    limits = np.unique(starts.high[judged])
    low, high = (np.searchsorted(limits, ends[judged]) for ends in (starts.low, starts.high))
    begun = covered(low, high, len(limits) + 1)[:-1]
    kept = 1 + np.flatnonzero(begun > math.floor(budget_per_step * healthy_steps)).max(initial=-1)
    return float(limits[kept]) if kept < len(limits) else math.inf


def _within(curve: Curve, merit: NDArray[Any], budget_per_step: float) -> NDArray[np.float64]:
    """The merit of each threshold; -1 where the budget is not kept, or nothing can be measured."""
    if not curve.failed or not curve.healthy:
        return np.full(len(merit), -1.0)
    return np.where(curve.fp <= budget_per_step * curve.healthy, merit, -1.0)


def _middle_of_best(curve: Curve, merit: NDArray[np.float64]) -> float:
    """NaN where no merit is at least 0."""
    if merit.max(initial=-1.0) < 0.0:
        return math.nan
    best = len(merit) - 1 - int(np.argmax(merit[::-1]))
    low = _finite(curve, best)
    high = float(curve.threshold[best + 1]) if best + 1 < len(merit) else low
    middle = low + (high - low) / 2.0
    return middle if math.isfinite(curve.threshold[best]) and low <= middle < high else low


def _finite(curve: Curve, index: int) -> float:
    """A threshold of a curve. For an alert at every record, a finite one just below the smallest score does as well."""
    low = float(curve.threshold[index])
    high = float(curve.threshold[index + 1]) if index + 1 < len(curve.threshold) else low
    return math.nextafter(high, -math.inf) if math.isinf(low) and math.isfinite(high) else low
