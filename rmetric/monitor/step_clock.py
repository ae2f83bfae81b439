"""The time of a step: from one call of the monitor to the next, without what is no part of training."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, ClassVar
from weakref import WeakSet

if TYPE_CHECKING:
    from rmetric.monitor.ranks.phases import PhaseClock

COUNTED = "/proc/thread-self/schedstat"
"""Nanoseconds that the calling thread ran, and those that it was ready to run and had to wait (Linux)."""


class StepClock:
    """Measures the time between steps.

    What ``phases`` times leaves out the same; ``waited`` tells the seconds so far in which another program had the
    processor, which are left out (``float()`` is 0: none are).
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


class Waits:
    """Seconds for which the thread that calls was ready to run and had no processor; only ever more.

    On a shared machine these are what other programs cost: not the training's own time, and no sign of hardware that
    fails. They count for the thread that calls, from one of its calls to the next; what the threads of a library wait
    for, the caller sees as its own time. 0 where the system does not count them.

    A call takes some µs, and up to 30 where it comes once in a long step.

    >>> waited = Waits()
    >>> waited() <= waited()
    True
    """

    def __init__(self) -> None:
        self._thread = ThreadWaits()
        self._seconds = 0.0
        self._before_s = self._thread.seconds()

    def __call__(self) -> float:
        thread = self._thread
        if thread.number != threading.get_native_id():  # also in a process that was forked
            self._thread = thread = ThreadWaits()
            self._before_s = thread.seconds()
        now_s = thread.seconds()
        self._seconds += now_s - self._before_s
        self._before_s = now_s
        return self._seconds


def own_clock() -> Callable[[], float]:
    """A clock that stands still while the thread that calls waits for a processor, seconds.

    Where a thread waits between the two looks that make a reading, two readings may differ by less than nothing.
    """
    waited = Waits()
    return lambda: time.perf_counter() - waited()


class ThreadWaits:
    """The count of the thread that makes this.

    Keeps a file open: to open it takes ten times as long as to read it.
    """

    def __init__(self) -> None:
        self.number = threading.get_native_id()
        """Of the thread."""
        self._seconds = 0.0
        self._file: int | None = None
        with suppress(OSError):  # another system
            self._file = os.open(COUNTED, os.O_RDONLY)

    def seconds(self) -> float:
        """Seconds since the thread began; stands still, from 0 on, where nobody counts them."""
        if self._file is not None:
            try:
                self._seconds = int(os.pread(self._file, 64, 0).split()[1]) * 1e-9
            except (OSError, ValueError, IndexError):
                self._close()
        return self._seconds

    def __del__(self) -> None:
        self._close()

    def _close(self, close: Callable[[int], None] = os.close) -> None:  # modules are gone when the interpreter ends
        file, self._file = self._file, None
        if file is not None:
            close(file)
