"""WORSE_VALIDATION: the validation loss has stepped up and stays there while the training loss does not rise."""

from __future__ import annotations

import math

import numpy as np

from rmetric.records import Observations
from rmetric.states.base import Evidence
from rmetric.states.held_out import FALLING, SIGNIFICANT, HeldOut
from rmetric.states.series import lie_above

LEAST_AFTER, BEFORE = 3, 7
"""Evaluations since the step at least, and before it, with which they are compared: before that it was higher."""

LEAST_EVALUATIONS = 9
"""Fewer cannot be significant: of nine, in one order of 126 all of the last four are the highest."""

LEAST_DISTANCE = 3.0
"""Units of the least rise."""
MANIFOLD = 2.0
"""Multiple of the lowest validation loss from which on the training loss need not fall: it must not have risen."""


def worse_validation(observations: Observations) -> Evidence | None:
    """Score: −log10 of the p-value (Mann, Whitney) that the latest evaluations lie above those before them.

    The latest are those since the last one that was as low as the lowest, within the noise of an evaluation and 1 % of
    the fall to it. 0 unless each of them lies above the seven before, their median by three times that noise, the
    difference is significant, and the training loss falls over the same steps; or has not risen, where they are twice
    as high as the lowest. A loss that rises little by little overfits; what steps up at once, and stays, is another
    model, or another evaluation. What was before a change that somebody has announced does not count.
    """
    held_out = HeldOut.of(observations)
    if held_out is None or len(held_out.evaluations) < LEAST_EVALUATIONS:
        return None
    steps, values = held_out.evaluations
    lowest = float(values[held_out.lowest])
    stepped = int(np.flatnonzero(values <= lowest + held_out.least_rise)[-1]) + 1
    since, after = int(steps[min(stepped, len(steps) - 1)]), values[stepped:]
    before = values[max(0, stepped - BEFORE) : stepped]
    level = float(np.median(after)) if len(after) else lowest
    far = len(after) >= LEAST_AFTER and level - lowest > LEAST_DISTANCE * held_out.least_rise
    p = lie_above(after, before) if far and after.min() > before.max() else 1.0
    p_training = held_out.training_falls(since) if p <= SIGNIFICANT else 1.0
    apart = level >= MANIFOLD * lowest > 0.0 and not held_out.training_ends_higher(since)
    return Evidence(
        score=-math.log10(max(p, 1e-300)) if p <= SIGNIFICANT and (p_training <= FALLING or apart) else 0.0,
        since=since,
        numbers={
            "level": level,
            "lowest_before": lowest,
            "p_of_step": p,
            "p_of_fall_of_training_loss": p_training,
            "evaluations": float(len(after)),
        },
        sentence=f"the validation loss stands at about {level:.4g} in {len(after)} evaluations; it had come down to "
        f"{lowest:.4g}, and the training loss {'went on falling' if p_training <= FALLING else 'has not risen'}",
    )
