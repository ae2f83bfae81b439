"""UNBOUNDED: the loss falls, to below zero by orders of magnitude more than it was: faster and faster, or at once."""

from __future__ import annotations

import math

import numpy as np

from rmetric.records import Observations
from rmetric.states.base import Evidence
from rmetric.states.series import LATEST, finite, since_planned, stands_at

LEAST_RECORDS = 50
THOUSANDFOLD = 3.0
"""In powers of ten."""
GROWS = 1.5
"""How many times as far below zero the last quarter is as the one before: what has a bound comes to stand there."""
MILLIONFOLD = 6.0
"""In powers of ten: no objective has a bound so far below its first losses, so that what leaps there need not go on."""
LEAP_RECORDS = 3
"""Of the ten latest losses, those that lie there at least: batches may take turns."""
TAKES_TURNS = 0.25
"""Share of neighbours of unlike sign in the first quarter from which on it is noise about 0, half of which has such:
the rounding errors of a policy's first steps, of which its later losses are any multiple."""


def unbounded(observations: Observations) -> Evidence | None:
    """Score: how far below zero the loss stands, in powers of ten of the largest that it was in the first quarter.

    0 below a thousand times, or where it neither goes on to fall nor has leapt a million times as far. Losses of
    healthy runs fall below zero too (log-densities, policy gradients), but not by more than tenfold. What was before a
    change that somebody has announced says nothing of another objective.
    """
    loss = finite(since_planned(observations), "training_loss")
    if len(loss) < LEAST_RECORDS:
        return None
    first, _, third, last = np.array_split(loss.values, 4)
    usual, now = float(np.abs(first).max()), stands_at(loss.values)
    since = int(np.flatnonzero(loss.values >= -usual)[-1]) + 1
    goes_on = now < 0.0 and bool(np.median(last) < GROWS * min(0.0, float(np.median(third))))
    if not goes_on and np.mean(np.diff(np.sign(first)) != 0.0) < TAKES_TURNS:
        millionfold = loss.values < -(10.0**MILLIONFOLD) * usual
        if int(millionfold[-2 * LATEST :].sum()) >= LEAP_RECORDS:
            goes_on, now, since = True, float(loss.values[millionfold][-1]), int(millionfold.argmax())
    powers = math.log10(-now / usual) if goes_on and now < 0.0 < usual else 0.0
    return Evidence(
        score=powers if powers >= THOUSANDFOLD else 0.0,
        since=int(loss.steps[min(since, len(loss) - 1)]),
        numbers={"usual": usual, "end": now},
        sentence=f"the loss has fallen to {now:.4g}; in the first quarter of the run it was {usual:.4g} from 0 at most",
    )
