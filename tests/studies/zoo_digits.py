"""Examples that several tests of the zoo look at."""

from __future__ import annotations

import numpy as np

from studies.zoo.data import digits
from studies.zoo.training import Examples


def some_digits(count: int, *, held_out: bool = False) -> Examples:
    """The same examples each time."""
    return digits().draw(np.random.default_rng(0), count, held_out=held_out)
