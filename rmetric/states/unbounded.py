"""UNBOUNDED: the loss falls, to below zero by orders of magnitude more than it was, and faster and faster."""

from __future__ import annotations

import math

import numpy as np

from rmetric.records import Observations
from rmetric.states.base import Evidence
from rmetric.states.series import finite, since_planned, stands_at

LEAST_RECORDS = 50
THOUSANDFOLD = 3.0
"""In powers of ten."""
GROWS = 1.5
"""How many times as far below zero the last quarter is as the one before: what has a bound comes to stand there."""


def unbounded(observations: Observations) -> Evidence | None:
    """Score: how far below zero the loss stands, in powers of ten of the largest that it was in the first quarter.

    0 below a thousand times, or where it does not go on to fall. Losses of healthy runs fall below zero too
    (log-densities, policy gradients), but not by more than tenfold. What was before a change that somebody has
    announced says nothing of another objective.
    """
    loss = finite(since_planned(observations), "training_loss")
    if len(loss) < LEAST_RECORDS:
        return None
    first, _, third, last = np.array_split(loss.values, 4)
    usual, now = float(np.abs(first).max()), stands_at(loss.values)
    goes_on = np.median(last) < GROWS * min(0.0, float(np.median(third)))
    powers = math.log10(-now / usual) if goes_on and now < 0.0 < usual else 0.0
    inside = np.flatnonzero(loss.values >= -usual)
    return Evidence(
        score=powers if powers >= THOUSANDFOLD else 0.0,
        since=int(loss.steps[min(int(inside[-1]) + 1, len(loss) - 1)]),
        numbers={"usual": usual, "end": now},
        sentence=f"the loss has fallen to {now:.4g}; in the first quarter of the run it was {usual:.4g} from 0 at most",
    )
