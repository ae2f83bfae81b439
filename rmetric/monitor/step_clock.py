"""The time of a step: from one call of the monitor to the next, without what is no part of training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import ClassVar
from weakref import WeakSet

from rmetric.monitor.ranks.phases import PhaseClock


class StepClock:
    """Measures the time between steps.

    Parameters
    ----------
    now
        The time, seconds.
    phases
        Times the phases of a step; what is left out here is left out there. ``None``: nothing does.
    waited
        Seconds of it so far in which another program had the processor: they are left out. ``float()`` is 0: none are.
    """

    _all: ClassVar[WeakSet[StepClock]] = WeakSet()

    def __init__(
        self, now: Callable[[], float], phases: PhaseClock | None = None, waited: Callable[[], float] = float
    ) -> None:
        self._all.add(self)
        self._now, self._phases, self._waited = now, phases, waited
        self._before_s, self._waited_before_s = math.nan, waited()
        self._times_s: list[float] = []

    def tick(self) -> None:
        """End a step. One in which the clock was set back has no time."""
        before_s, self._before_s = self._before_s, self._now()
        if math.isnan(before_s):
            self._waited_before_s = self._waited()
        elif self._before_s >= before_s:
            self._times_s.append(self._before_s - before_s)

    def read(self) -> float:
        """Mean time of the steps since the last call, seconds; NaN where none of them is known.

        What was waited is asked for here alone: that takes longer than to look at a clock.
        """
        known, self._times_s = self._times_s, []
        before_s, self._waited_before_s = self._waited_before_s, self._waited()
        return max(sum(known) - (self._waited_before_s - before_s), 0.0) / len(known) if known else math.nan

    def leave_out(self) -> None:
        """Let the steps since the last record have no time: something else than training took place in this one."""
        self._before_s, self._times_s = math.nan, []
        if self._phases is not None:
            self._phases.leave_out()

    @property
    def seconds(self) -> float:
        """Seconds since the last step; NaN where that is not known."""
        return self._now() - self._before_s

    @seconds.setter
    def seconds(self, seconds: float) -> None:
        self._before_s = self._now() - seconds

    @classmethod
    @contextmanager
    def all_paused(cls) -> Iterator[None]:
        """Leave the time of this context out of the steps of every training of this process."""
        with ExitStack() as stack:
            for clock in [*cls._all]:
                stack.enter_context(clock.paused())
            yield

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the time of this context out."""
        seconds, waited_s = self.seconds, self._waited() - self._waited_before_s
        try:
            with nullcontext() if self._phases is None else self._phases.paused():
                yield
        finally:
            self.seconds, self._waited_before_s = seconds, self._waited() - waited_s
