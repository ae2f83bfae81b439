"""OVERFITS: the validation loss rises from its lowest value while the training loss goes on falling."""

from __future__ import annotations

import math

import numpy as np

from rmetric.records import Observations
from rmetric.states.base import Evidence
from rmetric.states.held_out import FALLING, SIGNIFICANT, HeldOut
from rmetric.states.series import rises

LEAST_AFTER = 4
"""Evaluations from the lowest one to the end."""


def overfits(observations: Observations) -> Evidence | None:
    """Score: −log10 of the p-value (Mann, Kendall) of a rise of the validation loss since its lowest value.

    0 where the rise is not significant, or below the noise of an evaluation or 1 % of the fall before it; where the
    training loss does not fall over the same steps, or ends no lower than it stood at the lowest validation loss; where
    it leaps as the validation loss begins to rise: labels or data have changed, however far it falls again. What was
    before a change that somebody has announced is no lowest value.
    """
    held_out = HeldOut.of(observations)
    if held_out is None:
        return None
    since, after = int(held_out.evaluations.steps[held_out.lowest]), held_out.evaluations.values[held_out.lowest :]
    rise = float(np.median(after[-3:]) - after[0])
    p_training = held_out.training_falls(since)
    p = rises(after) if len(after) >= LEAST_AFTER else 1.0
    falling = p_training <= FALLING and not held_out.training_ends_higher(since)
    is_one = falling and p <= SIGNIFICANT and rise > held_out.least_rise and not held_out.leaps_with_training
    return Evidence(
        score=-math.log10(max(p, 1e-300)) if is_one else 0.0,
        since=since,
        numbers={
            "rise": rise,
            "p_of_rise": p,
            "p_of_fall_of_training_loss": p_training,
            "evaluations": float(len(after)),
        },
        sentence=f"the validation loss has risen by {rise:.3g} from its lowest, {after[0]:.4g}, in {len(after) - 1} "
        "evaluations, while the training loss fell",
    )
