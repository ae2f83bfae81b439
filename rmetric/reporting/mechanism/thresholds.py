"""Thresholds that keep the false-alarm budget on healthy steps, fitted on other seeds than the one they judge."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rmetric.evaluation.calibration import BUDGET_PER_STEP
from rmetric.evaluation.protocols import HEALTHY, Starts, Timeline


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
    chosen = (starts.zone == HEALTHY) & runs[starts.run]
    low, high = starts.low[chosen], starts.high[chosen]
    judged = high > -math.inf
    if not healthy_steps or not judged.any():
        return math.nan
    low, high = low[judged], high[judged]
    allowed = math.floor(budget_per_step * healthy_steps)
    lowest = math.inf
    for threshold in np.unique(high)[::-1].tolist():
        if int(((low <= threshold) & (threshold < high)).sum()) > allowed:
            break
        lowest = threshold
    return lowest


def left_out_thresholds(
    timeline: Timeline, starts: Starts, repetition: NDArray[np.int64], budget_per_step: float = BUDGET_PER_STEP
) -> dict[int, float]:
    """Repetition (a seed of every group) → threshold fitted on all the others."""
    fitted = {}
    for left_out in np.unique(repetition).tolist():
        others = repetition != left_out
        steps = float(timeline.healthy_steps[others].sum())
        fitted[left_out] = lowest_within_budget(starts, steps, others, budget_per_step)
    return fitted


def false_alarms(starts: Starts, thresholds: Mapping[int, float], repetition: NDArray[np.int64]) -> int:
    """Alert episodes that begin in healthy steps, each run judged by the threshold of its repetition."""
    limit = np.array([thresholds[int(number)] for number in repetition], dtype=np.float64)[starts.run]
    begun = (starts.low <= limit) & (limit < starts.high) & (starts.zone == HEALTHY)
    return int(begun.sum())
