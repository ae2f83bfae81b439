"""OVERFITS: the validation loss rises from its lowest value while the training loss goes on falling."""

from __future__ import annotations

import numpy as np

from rmetric.records import Observations
from rmetric.states.base import Evidence
from rmetric.states.held_out import FALLING, SIGNIFICANT, HeldOut
from rmetric.states.series import rises, surprise

LEAST_AFTER = 4
"""Evaluations after the lowest one: where so few rise, each has to lie above the one before."""


def overfits(observations: Observations) -> Evidence | None:
    """Score: −log10 of the p-value (Mann, Kendall) of a rise of the validation losses after their lowest value.

    The lowest itself says nothing of a rise: it lies below the others because it was chosen. 0 where the rise is
    neither significant nor steady, or below the noise of an evaluation or 1 % of the fall before it; where the training
    loss does not fall over the same steps, or ends no lower than it stood at the lowest validation loss; where it leaps
    as the validation loss begins to rise, or just before: labels or data have changed, however far it falls again. What
    was before a change that somebody has announced is no lowest value.
    """
    held_out = HeldOut.of(observations)
    if held_out is None:
        return None
    steps, values = held_out.evaluations
    since, lowest, after = int(steps[held_out.lowest]), float(values[held_out.lowest]), values[held_out.lowest + 1 :]
    enough = len(after) >= LEAST_AFTER
    rise = float(np.median(after[-3:])) - lowest if enough else 0.0
    p = rises(after) if enough else 1.0
    upward = (p <= SIGNIFICANT or bool((np.diff(after) > 0.0).all())) and rise > held_out.least_rise
    p_training = held_out.training_falls(since)
    falling = p_training <= FALLING and held_out.training_rise(since) <= 0.0
    is_one = upward and falling and not held_out.leaps_with_training
    return Evidence(
        score=surprise(p) if is_one else 0.0,
        since=since,
        numbers={
            "rise": rise,
            "p_of_rise": p,
            "p_of_fall_of_training_loss": p_training,
            "evaluations": float(len(after)),
        },
        sentence=f"the validation loss has risen by {rise:.3g} from its lowest, {lowest:.4g}, in {len(after)} "
        "evaluations, while the training loss fell",
    )
