"""Surprise: how rarely healthy runs show as much as a statistic does."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import NamedTuple

EVERYDAY_PER_STEP = 0.01
"""False alarms a healthy step that surprise nobody: evidence is counted from there, and noise adds up to nothing."""
DECADES_PER_DOUBLING = 1.0
"""Growth of surprise beyond the largest healthy value, where nothing is measured: a power law, f ~ x^-3.3."""
LARGEST_SURPRISE = 10.0
"""Surprise of a finite statistic: no study can tell one false alarm in 10^12 steps from fewer."""


class Tail(NamedTuple):
    """Surprise of a statistic: how rare the false alarms are that a bar of that height alone would give, in decades.

    .. math:: s(x) = -\\log_{10} (f(x) / 0.01)

    with f(x) the alert episodes that begin in a healthy step for a bar at x. 0 below the first measured height, linear
    between the heights, a decade for each doubling beyond the last of them.
    """

    bars: tuple[float, ...]
    """Values of the statistic, increasing."""
    surprises: tuple[float, ...]
    """Decades; increasing, at least 0."""

    def surprise(self, statistic: float) -> float:
        """Surprise from 0 to :data:`LARGEST_SURPRISE`; infinite for infinity, 0 for NaN, which is no evidence.

        >>> Tail((1.0, 2.0, 4.0), (0.0, 1.0, 2.0)).surprise(3.0)
        1.5
        >>> [Tail((1.0, 2.0), (0.0, 1.0)).surprise(x) for x in (0.5, 4.0, 1e9, math.nan, math.inf)]
        [0.0, 2.0, 10.0, 0.0, inf]
        """
        bars, surprises = self.bars, self.surprises
        if not bars or not statistic >= bars[0]:
            return 0.0 if statistic < math.inf or statistic != statistic else math.inf
        if statistic == math.inf:
            return math.inf
        if statistic >= bars[-1]:
            beyond = DECADES_PER_DOUBLING * math.log2(statistic / bars[-1]) if bars[-1] > 0.0 else 0.0
            return min(surprises[-1] + beyond, LARGEST_SURPRISE)
        upper = bisect_right(bars, statistic)
        share = (statistic - bars[upper - 1]) / (bars[upper] - bars[upper - 1])
        return surprises[upper - 1] + share * (surprises[upper] - surprises[upper - 1])
