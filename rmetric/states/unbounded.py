"""UNBOUNDED: the loss has fallen below zero by orders of magnitude more than it ever was."""

from __future__ import annotations

import math

import numpy as np

from rmetric.records import Observations
from rmetric.states.base import Evidence
from rmetric.states.series import finite, since_planned

LEAST_RECORDS = 50
FIRST = 4
"""Divisor of the records: a first quarter tells how large the loss is."""
LATEST = 5
"""Losses whose median is where the run stands."""
THOUSANDFOLD = 3.0
"""In powers of ten."""


def unbounded(observations: Observations) -> Evidence | None:
    """Score: how far below zero the loss stands, in powers of ten of the largest that it was in the first quarter.

    0 below a thousand times. Losses of healthy runs fall below zero too (log-densities, policy gradients), but not by
    more than tenfold. What was before a change that somebody has announced says nothing of another objective.
    """
    loss = finite(since_planned(observations), "training_loss")
    if len(loss) < LEAST_RECORDS:
        return None
    usual, end = float(np.abs(loss.values[: len(loss) // FIRST]).max()), float(np.median(loss.values[-LATEST:]))
    powers = math.log10(-end / usual) if end < 0.0 < usual else 0.0
    inside = np.flatnonzero(loss.values >= -usual)
    return Evidence(
        score=powers if powers >= THOUSANDFOLD else 0.0,
        since=int(loss.steps[min(int(inside[-1]) + 1, len(loss) - 1)]),
        numbers={"usual": usual, "end": end},
        sentence=f"the loss has fallen to {end:.4g}; in the first quarter of the run it was {usual:.4g} from 0 at most",
    )
