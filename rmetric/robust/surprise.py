"""Surprise: how rarely healthy runs show as much as a statistic does, and what a run makes of its own."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Heights = Sequence[float] | NDArray[np.float64]

EVERYDAY_PER_STEP = 0.01
"""False alarms a healthy step that surprise nobody: evidence is counted from there, and noise adds up to nothing."""
DECADES_PER_DOUBLING = 1.0
"""Growth of surprise beyond the largest healthy value, where nothing is measured: a power law, f ~ x^-3.3."""
LARGEST_SURPRISE = 10.0
"""Surprise of a finite statistic: no study can tell one false alarm in 10^12 steps from fewer."""
NOTABLE, ALARMING = 2.0, 2.5
"""Surprise that a run remembers, one false alarm in 10,000 steps, and one that may have been an alert."""
QUIET_RECORDS = 50
"""Records after an alarming surprise in which what comes belongs to it, so that the bar is still the old one."""
RETURNS, APART_RECORDS = 4, 5
"""Returns of an alarming surprise, each after so many records without one, from which on it is the run's way."""
FIRST_RAISE, LARGEST_RAISE = 1.4, 5.0
"""Decades by which a run raises its own bar the first time, at most, and by which it ever does: what it has shown once
may have been a failure that it absorbed, and is not to hide a worse one; what it shows again is its way."""
OUTLASTS, OUTLASTING_RECORDS = 4, 32
"""Multiples of the alarming records that a run has survived, and such records at least, beyond which a time of them is
something else, however high the run's own bar."""


def surprise_of(statistic: float, reached: int, bars: Heights, surprises: Heights) -> float:
    """:meth:`Tail.surprise` of a statistic that reaches so many of the bars."""
    if statistic == math.inf:
        return math.inf
    if reached == 0 or statistic != statistic:
        return 0.0
    if reached == len(bars):
        beyond = DECADES_PER_DOUBLING * math.log2(statistic / bars[-1]) if bars[-1] > 0.0 else 0.0
        return min(surprises[-1] + beyond, LARGEST_SURPRISE)
    share = (statistic - bars[reached - 1]) / (bars[reached] - bars[reached - 1])
    return surprises[reached - 1] + share * (surprises[reached] - surprises[reached - 1])


def remembered(
    surprise: float, raised: float, peak: float, quiet: int, returns: int, lasted: int, longest: int
) -> tuple[float, float, int, int, int, int]:
    """State of an :class:`OwnBar` after a finite surprise, from the state before; see its attributes."""
    peak = max(peak, surprise)
    if surprise > ALARMING and quiet >= APART_RECORDS:
        returns += 1
    quiet = quiet + 1 if surprise <= ALARMING else 0
    if quiet == QUIET_RECORDS or returns == RETURNS:
        most = LARGEST_RAISE if raised or returns == RETURNS else FIRST_RAISE
        raised = max(raised, min(peak - NOTABLE, most))
        longest = max(longest, lasted)
        peak, quiet, returns, lasted = 0.0, 0, 0, 0
    return raised, peak, quiet, returns, lasted, longest


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
        bars, surprises = self
        if bars and statistic < bars[0]:  # as nearly always
            return 0.0
        return surprise_of(statistic, bisect_right(bars, statistic), bars, surprises)


class OwnBar:
    r"""Evidence of a run's own: a surprise less the bar of what the run has shown before and survived.

    .. math:: e_t = \max(0, s_t - b), \qquad b \leftarrow \max(b, \min(p - 2, c)), \qquad c = 1.4, \; 5, \; 5 \dots

    with p the largest surprise of a time that has passed: one above 2 has when fifty records in a row have none above
    2.5, or as soon as one above that has returned for the fourth time, as in the last batches of each epoch. A lively
    run, whose loss jumps by design, so raises its own bar: what it shows once more counts less, and what it shows again
    and again for nothing. An infinite surprise stays infinite, and is not remembered. The bar does not count any more
    in a time that has more than 32 alarming records and more than four times as many as any that passed: what lasts is
    not what the run has survived.

    >>> bar = OwnBar()
    >>> [round(bar.update(surprise), 1) for surprise in (2.6, 5.0, *[0.0] * 50, 5.0, *[0.0] * 50, 5.0, 9.0)][1::51]
    [5.0, 3.6, 2.0]
    >>> round(bar.update(9.0), 1)
    6.0
    """

    def __init__(self) -> None:
        self.raised = self.peak = 0.0
        self.quiet = self.returns = self.lasted = self.longest = 0

    def update(self, surprise: float) -> float:
        """Evidence of the next record."""
        if ALARMING < surprise < math.inf:
            self.lasted += 1
        bar = self.raised
        if bar and self.lasted > max(OUTLASTS * self.longest, OUTLASTING_RECORDS):
            bar = 0.0
        evidence = max(surprise - bar, 0.0)
        if (surprise > NOTABLE or self.peak) and surprise < math.inf:
            self._remember(surprise)
        return evidence

    def _remember(self, surprise: float) -> None:
        self.raised, self.peak, self.quiet, self.returns, self.lasted, self.longest = remembered(
            surprise, self.raised, self.peak, self.quiet, self.returns, self.lasted, self.longest
        )
