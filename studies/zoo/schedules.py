"""Schedules of the learning rate: the share of its peak, between 0 and 1, by the share of the steps that is done.

:func:`inverse_root` has no end, and goes by the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

RESTARTS = (1, 2, 4)
"""Lengths of cosines, each over the first."""
DECAY = 0.2
"""Share of the steps in which a rate that was constant falls."""


def cosine(done: float, last: float = 0.0) -> float:
    """Half a cosine from 1 down to ``last``."""
    return last + (1.0 - last) * 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))


def linear(done: float, last: float = 0.0) -> float:
    """A line from 1 down to ``last``."""
    return last + (1.0 - last) * (1.0 - min(done, 1.0))


def exponential(done: float, last: float) -> float:
    """The same share less in each step, from 1 down to ``last``."""
    return float(last**done)


def drops(done: float, at: Sequence[float] = (0.5, 0.75), factor: float = 0.1) -> float:
    """A constant that is multiplied by ``factor`` at each place."""
    return factor ** sum(done >= place for place in at)


def warm_restarts(done: float) -> float:
    """Cosines one after the other, of the relative lengths :data:`RESTARTS`.

    **Source:** Loshchilov, Hutter 2017, SGDR: Stochastic Gradient Descent with Warm Restarts.
    """
    place = min(done, 1.0) * sum(RESTARTS)
    for length in RESTARTS[:-1]:
        if place < length:
            return cosine(place / length)
        place -= length
    return cosine(place / RESTARTS[-1])


def one_cycle(done: float, rise: float = 0.3, first: float = 0.04) -> float:
    """Half a cosine up from ``first``, then one down to 0.

    **Source:** Smith, Topin 2018, Super-Convergence. **Deviation:** momentum stays.
    """
    if done < rise:
        return first + (1.0 - first) * (1.0 - cosine(done / rise))
    return cosine((done - rise) / (1.0 - rise))


def inverse_root(step: int, warm_up: int) -> float:
    """A line up to 1 over the warm-up, then down as one over the root of the step, from 1 on.

    **Source:** Vaswani et al. 2017, Attention Is All You Need, section 5.3.
    """
    return min(step / warm_up, (warm_up / step) ** 0.5)


def stable_then_decay(done: float) -> float:
    """Constant, and over the last :data:`DECAY` a line down to 0: what is called WSD, without its warm-up.

    **Source:** Hu et al. 2024, MiniCPM, section 4.
    """
    return min(1.0, max(1.0 - done, 0.0) / DECAY)
