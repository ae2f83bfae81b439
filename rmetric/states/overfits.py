"""OVERFITS: the validation loss rises from its lowest value while the training loss goes on falling."""

from __future__ import annotations

import math

import numpy as np

from rmetric.records import Observations
from rmetric.states.base import Evidence
from rmetric.states.series import evaluations, falls, finite, noise, rises, since_planned

LEAST_EVALUATIONS = 6
LEAST_AFTER = 4
"""Evaluations from the lowest one to the end."""
SIGNIFICANT = 0.01
"""Largest p-value of the rise."""
FALLING = 0.05
"""Largest p-value of a fall of the training loss over the same steps."""
FLOOR = 0.01
"""Share of the fall of the validation loss to its lowest value below which a rise is none."""
MOST_BLOCKS = 50


def overfits(observations: Observations) -> Evidence | None:
    """Score: −log10 of the p-value (Mann, Kendall) of a rise of the validation loss since its lowest value.

    0 where the rise is not significant, or below the noise of an evaluation or 1 % of the fall before it, or the
    training loss does not fall over the same steps. What was before a change that somebody has announced is no lowest
    value: another task may be harder to generalise.
    """
    observations = since_planned(observations)
    held_out, loss = evaluations(observations), finite(observations, "training_loss")
    if len(held_out) < LEAST_EVALUATIONS or len(loss) < LEAST_EVALUATIONS:
        return None
    lowest = int(held_out.values.argmin())
    since, after = int(held_out.steps[lowest]), held_out.values[lowest:]
    rise = float(np.median(after[-3:]) - after[0])
    training = loss.part(slice(int(np.searchsorted(loss.steps, since)), None))
    p_training = falls(training.blocks(MOST_BLOCKS).values) if len(training) else 1.0
    p = rises(after) if len(after) >= LEAST_AFTER else 1.0
    least = max(noise(held_out.values), FLOOR * abs(float(held_out.values[0] - after[0])))
    is_one = p_training <= FALLING and p <= SIGNIFICANT and rise > least
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
