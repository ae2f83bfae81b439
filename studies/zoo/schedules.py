"""Schedules of the learning rate: the share of its peak, between 0 and 1, by the share of the steps that is done."""

from __future__ import annotations

import math


def cosine(done: float, last: float = 0.0) -> float:
    """Half a cosine from 1 down to ``last``."""
    return last + (1.0 - last) * 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))


def linear(done: float, last: float = 0.0) -> float:
    """A line from 1 down to ``last``."""
    return last + (1.0 - last) * (1.0 - min(done, 1.0))
