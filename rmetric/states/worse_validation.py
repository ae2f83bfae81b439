"""WORSE_VALIDATION: the validation loss has stepped up and stays there while the training loss does not rise."""

from __future__ import annotations

import numpy as np

from rmetric.records import Observations
from rmetric.states.base import Evidence
from rmetric.states.held_out import FALLING, SIGNIFICANT, HeldOut
from rmetric.states.series import lie_above, noise, surprise

LEAST_AFTER, BEFORE = 3, 7
"""Evaluations since the step at least, and before it, with which they are compared: before that it was higher."""

LEAST_EVALUATIONS = 9
"""Fewer cannot be significant: of nine, in one order of 126 all of the last four are the highest."""

LEAST_DISTANCE = 3.0
"""Units of the least rise."""
LASTING = 0.001
"""Largest p-value where the training loss does not fall: six evaluations, each above the seven before."""
CERTAIN, EXPLAINS = 3.0, 0.5
"""Standard errors within which a rise of the training loss is none; and the share of the rise of the validation loss
that it must be certain not to reach."""
FAR_ABOVE_LOWEST = 2.0
"""Multiple of the lowest validation loss from which on the training loss need not fall: it must not have risen."""


def worse_validation(observations: Observations) -> Evidence | None:
    """Score: −log10 of the p-value (Mann, Whitney) that the latest evaluations lie above those before them.

    The latest are those since the last one that was nearer to the lowest than to where they stand now. 0 unless each of
    them lies above the seven before, their median by three times the noise of an evaluation and 3 % of the fall to the
    lowest above theirs, the difference is significant, and the training loss falls over the same steps. Since noise may
    hide that fall, or it came at once, six evaluations or more suffice where the training loss shows no rise over those
    compared, and surely none by half as much; or three that are twice as high as the lowest, where it has not risen by
    more than its own noise. Where all before are no more than seven, those that precede the first nearer one are left
    out, down to three: an untrained network is worse. A loss that rises little by little overfits; what steps up at
    once, and stays, is another model, or another evaluation. What was before a change that somebody has announced does
    not count.
    """
    held_out = HeldOut.of(observations)
    if held_out is None or len(held_out.evaluations) < LEAST_EVALUATIONS:
        return None
    steps, values = held_out.evaluations
    lowest, now = float(values[held_out.lowest]), float(np.median(values[-LEAST_AFTER:]))
    nearer = np.flatnonzero(values <= (lowest + now) / 2.0)
    learned, stepped = int(nearer[0]), int(nearer[-1]) + 1
    since, after = int(steps[min(stepped, len(steps) - 1)]), values[stepped:]
    begin = stepped - BEFORE if stepped > BEFORE else max(0, min(learned, stepped - LEAST_AFTER))
    before = values[begin:stepped]
    level = float(np.median(after)) if len(after) else now
    far = len(after) >= LEAST_AFTER and level - np.median(before) > LEAST_DISTANCE * held_out.least_rise
    p = lie_above(after, before) if far and after.min() > before.max() else 1.0
    p_training = held_out.training_falls(since) if p <= SIGNIFICANT else 1.0
    unlike = p <= LASTING and _is_unlike(held_out, slice(begin, stepped), level - float(np.median(before)))
    apart = level >= FAR_ABOVE_LOWEST * lowest > 0.0 and held_out.training_rise(since) <= noise(held_out.loss.values)
    return Evidence(
        score=surprise(p) if p <= SIGNIFICANT and (p_training <= FALLING or unlike or apart) else 0.0,
        since=since,
        numbers={
            "level": level,
            "lowest_before": lowest,
            "p_of_step": p,
            "p_of_fall_of_training_loss": p_training,
            "evaluations": float(len(after)),
        },
        sentence=f"the validation loss stands at about {level:.4g} in {len(after)} evaluations; it had come down to "
        f"{lowest:.4g}, and the training loss {'has fallen since' if p_training <= FALLING else 'has not risen'}",
    )


def _is_unlike(held_out: HeldOut, before: slice, rise: float) -> bool:
    """Whether the training loss shows no rise since some evaluations, and noise hides none that explains this one."""
    steps = held_out.evaluations.steps
    since = int(steps[before.stop])
    difference, error = held_out.training_difference(int(steps[before.start]), int(steps[before.stop - 1]), since)
    return difference <= CERTAIN * error and difference + CERTAIN * error <= EXPLAINS * rise
