"""Steps between records: a number, or chosen by what a record costs."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Literal

AUTO: Literal["auto"] = "auto"
CHECKED, TRIED = 64, 32
"""First steps, which cost more since the order of calls is checked in them, and steps after them that are tried."""
SHARE = 0.0045
"""Largest share of a step's time that the monitor is to take on average; the goal is 0.005."""
RARE, REST = 1.3, 1.0 / 30.0
"""Cost of a record that comes seldom, and finds nothing in the processor's cache, and of a step without one, in those
of a record that comes in each step (measured by ``benchmarks/monitor.py``)."""
INTERVALS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 40, 50, 60, 80, 100, 150, 200, 300, 400, 500)


class RecordInterval:
    """Says in which steps a record is due: those whose number is a multiple of :attr:`steps`.

    Parameters
    ----------
    asked
        A number, at least 1; or ``"auto"``: one until the monitor knows what a record costs, then the smallest of
        :data:`INTERVALS` by which all that it does takes at most :data:`SHARE` of the time, the largest if none does.
    sigma_sq_every
        Steps between measurements of σ² from micro-batches, at least 1: a record that is due then has one.
    """

    def __init__(
        self, asked: int | Literal["auto"], sigma_sq_every: int = 1, now: Callable[[], float] = time.perf_counter
    ) -> None:
        self.steps = 1 if asked == AUTO else asked
        self.open = asked == AUTO
        """True until the choice is made."""
        self.chosen = False
        """True once it is made, here or in the run that is resumed."""
        self._sigma_sq_every, self._now = sigma_sq_every, now
        self._costs_s: deque[float] = deque(maxlen=TRIED)
        self._steps_s: deque[float] = deque(maxlen=TRIED)

    @property
    def records_per_sigma_sq(self) -> int:
        """Records from one measurement of σ² to the next."""
        return math.ceil(self._sigma_sq_every / self.steps)

    @property
    def steps_per_sigma_sq(self) -> int:
        """Steps from one measurement of σ² to the next, up to a record."""
        return self.records_per_sigma_sq * self.steps

    def due(self, step: int) -> bool:
        return step % self.steps == 0

    @contextmanager
    def timed(self, step: int) -> Iterator[None]:
        """Remember what is done for a step in this context, if the choice depends on it."""
        if not self.open or step <= CHECKED:
            yield
            return
        began = self._now()
        yield
        self._costs_s.append(self._now() - began)

    def step_took(self, seconds: float) -> None:
        """Remember the time of a step, the monitor's own included; NaN for one that is not known."""
        if self.open and seconds == seconds:
            self._steps_s.append(seconds)

    def choose(self) -> bool:
        """Make the choice as soon as it can be made; whether it is another interval than before."""
        if len(self._costs_s) < TRIED or not self._steps_s:
            return False
        cost_s = median(self._costs_s)
        self.fix(interval(cost_s, median(self._steps_s) - cost_s))
        return self.steps > 1

    def fix(self, steps: int) -> None:
        """Take this interval from now on."""
        self.steps, self.open, self.chosen = steps, False, True
        self._costs_s.clear()  # what has been chosen is not chosen again


def interval(cost_s: float, step_s: float) -> int:
    """Steps between records that cost so much, for steps that take so long without the monitor.

    >>> interval(0.001, 1.0), interval(0.001, 0.025), interval(0.001, 0.0)
    (1, 20, 500)
    """
    left_s = SHARE * step_s - REST * cost_s
    return next((steps for steps in INTERVALS if RARE * cost_s <= left_s * steps), INTERVALS[-1])
