"""Whether the learning rate has just been raised: what follows from that is no sign of a fault by itself."""

from __future__ import annotations

import math

from rmetric.robust.reference import SortedWindow

RAISED = 1.1
"""Over the usual one."""


class Schedule:
    """Learning rates of a run so far.

    A restart of the schedule makes loss and gradients leave their course for a while, and is meant to. How far it goes
    is judged by the size of the updates; how long it goes on is not summed up while the rate is above the median of the
    last ``window`` records: a rate that stays high is the usual one after half a window.

    >>> schedule = Schedule(window=4)
    >>> [schedule.raised(rate) for rate in (0.1, 0.2, 0.2, 0.2, 0.6, 0.6, 0.6, 0.6, 0.3)]
    [False, True, True, False, True, True, True, False, False]
    """

    def __init__(self, window: int) -> None:
        self._rates = SortedWindow(window)

    def raised(self, rate: float) -> bool:
        """Whether the next record's learning rate is above the usual one; not where it is not known."""
        if not math.isfinite(rate):
            return False
        above = len(self._rates) > 0 and rate > RAISED * self._rates.middle
        self._rates.add(rate)
        return above
