"""Report slow steps: the hardware signal that every machine has."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, insort
from collections import deque

from rmetric.components import STALL, STRAGGLER
from rmetric.monitor.hardware.reports import HardwareReport
from rmetric.robust.reference import NORMAL

WINDOW = 64
"""Recent steps that make the level."""
WARM_UP = 16
"""Steps before anything is reported; the first ones allocate and compile."""
FACTOR = 2.0
"""Step time over the median."""
MINIMUM_EXCESS_S = 0.1
"""Seconds over the median that are worth a report: shorter ones are the scheduling of the operating system."""
SIGMAS = 6.0
"""Robust standard deviations of the level within which a step is noise, however long."""
STALL_FACTOR = 10.0
STALL_EXCESS_S = 1.0


class StepTimes:
    r"""Reports a step that took far longer than the recent ones.

    .. math:: t > \max(2 m,\; m + 0.1 s,\; m + 6 · 1.4826 · MAD)

    with the median m and the median absolute deviation MAD of the last 64 steps. Such a step is a
    ``straggler``, or a ``stall`` if it took more than 10 medians and 1 s over the median.

    It enters the window clipped to the bar it exceeded, so that even a run of outliers leaves the bar where it was: a
    lasting slow-down is reported for a quarter to half of a window (one of 100 × for one and a half) and is the new
    level after that.

    How often healthy steps are reported: never if all lie below twice the median (noise of ±20 % with some of 1.5 ×).
    3,000 healthy steps of 18 ms and 80 ms on a shared two-core machine gave none, although the worst took five
    medians: 72 ms over the median do not reach 0.1 s. Log-normal step times, as with batches of very
    different length, are reported about 4 times in 1,000 steps at a standard deviation of the logarithm of 0.5.

    Time that is not training (a validation, a checkpoint) belongs out of the step times, or it is reported.

    State: numbers, a deque and a list of numbers, nothing else. An update costs about 1 µs.

    >>> times = StepTimes()
    >>> any(times.update(0.2) for _ in range(20))
    False
    >>> times.update(0.9).details
    'step took 0.900 s, 4.5 times the recent 0.200 s'
    """

    def __init__(self, *, worker: int = 0) -> None:
        self._worker = worker
        self._recent_s: deque[float] = deque()
        self._sorted_s: list[float] = []

    @property
    def level_s(self) -> float:
        """Median of the recent steps in seconds; NaN before the first."""
        return self._sorted_s[len(self._sorted_s) // 2] if self._sorted_s else math.nan

    def update(self, step_time_s: float) -> HardwareReport | None:
        """Take in a step; return a report if it was far too long. A negative or non-finite time is no measurement."""
        if not 0.0 <= step_time_s < math.inf:
            return None
        if len(self._sorted_s) < WARM_UP:
            self._accept(step_time_s)
            return None
        level_s = self.level_s
        bar_s = max(FACTOR * level_s, level_s + MINIMUM_EXCESS_S)
        if step_time_s > bar_s:  # the costly part, rarely
            bar_s = max(bar_s, level_s + SIGMAS * NORMAL * self._deviation_s(level_s))
        if step_time_s <= bar_s:
            self._accept(step_time_s)
            return None
        self._accept(bar_s)
        return self._report(step_time_s, level_s)

    def _accept(self, step_time_s: float) -> None:
        if len(self._recent_s) == WINDOW:
            del self._sorted_s[bisect_left(self._sorted_s, self._recent_s.popleft())]
        self._recent_s.append(step_time_s)
        insort(self._sorted_s, step_time_s)

    def _deviation_s(self, level_s: float) -> float:
        return statistics.median_high(abs(seconds - level_s) for seconds in self._sorted_s)

    def _report(self, step_time_s: float, level_s: float) -> HardwareReport:
        stalled = step_time_s > STALL_FACTOR * level_s and step_time_s - level_s > STALL_EXCESS_S
        times = f"{step_time_s / level_s:.1f} times the recent" if level_s > 0.0 else "the recent ones"
        details = f"step took {step_time_s:.3f} s, {times} {level_s:.3f} s"
        return HardwareReport(STALL if stalled else STRAGGLER, "correctable", self._worker, details)
