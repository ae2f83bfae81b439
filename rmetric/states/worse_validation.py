"""WORSE_VALIDATION: the validation loss has stepped up and stays there while the training loss goes on falling."""

from __future__ import annotations

import math

import numpy as np

from rmetric.records import Observations
from rmetric.states.base import Evidence
from rmetric.states.held_out import FALLING, SIGNIFICANT, HeldOut
from rmetric.states.series import Floats

LEAST_AFTER, LEAST_BEFORE = 3, 7
"""Evaluations since the step, and up to the lowest one, with which they are compared: as many, but these at least."""


def worse_validation(observations: Observations) -> Evidence | None:
    """Score: −log10 of the p-value (Mann, Whitney) that evaluations since the lowest lie above those up to it.

    0 where the difference is not significant, or one of them is not above the lowest by the noise of an evaluation and
    1 % of the fall before it, or the training loss does not fall over the same steps. A loss that rises little by
    little overfits; what steps up at once, and stays, is another model, or another evaluation. What was before a change
    that somebody has announced does not count.
    """
    held_out = HeldOut.of(observations)
    if held_out is None:
        return None
    steps, values = held_out.evaluations
    upto, after = values[: held_out.lowest + 1], values[held_out.lowest + 1 :]
    lowest, since = float(upto[-1]), int(steps[min(held_out.lowest + 1, len(steps) - 1)])
    stays = len(after) >= LEAST_AFTER and float(after.min()) - lowest > held_out.least_rise
    p = _lie_above(after, upto[-max(len(after), LEAST_BEFORE) :]) if stays else 1.0
    p_training = held_out.training_falls(since) if p <= SIGNIFICANT else 1.0
    level = float(np.median(after)) if len(after) else lowest
    return Evidence(
        score=-math.log10(max(p, 1e-300)) if p_training <= FALLING else 0.0,
        since=since,
        numbers={
            "level": level,
            "lowest_before": lowest,
            "p_of_step": p,
            "p_of_fall_of_training_loss": p_training,
            "evaluations": float(len(after)),
        },
        sentence=f"the validation loss stands at about {level:.4g} in {len(after)} evaluations; it had come down to "
        f"{lowest:.4g}, and the training loss went on falling",
    )


def _lie_above(after: Floats, before: Floats) -> float:
    """p-value of Mann and Whitney's test; small: the values after lie above those before."""
    from scipy.stats import mannwhitneyu  # half a second to import, and most logs are read without it

    return float(mannwhitneyu(after, before, alternative="greater").pvalue)
