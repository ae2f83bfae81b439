"""Surprise: how rarely healthy runs, and this run before, show as much as a statistic does."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from typing import NamedTuple

from rmetric.episodes import REARM_STEPS

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


class BaseRate:
    """Base rate of one statistic's surprises in this run so far; what it explains is taken off a surprise. Streams.

    The tails say how often healthy runs show as much as that. Another optimizer or machine makes a run livelier than
    those, and it shows so by how often it has surprised a little. With k such episodes where e were to be expected:

    .. math:: s' = s - \\log_{10} \\max\\Big(1, \\frac{k + 1}{e + 1}\\Big), \\qquad e = 0.01 \\cdot steps

    **Source:** posterior mean of a Poisson rate, in units of the expected one, under its conjugate prior Gamma(1, 1): a
    run is taken to be like the others until it says otherwise. A calm run earns nothing by it.

    >>> base_rate = BaseRate()
    >>> [round(base_rate.beyond(step, 1.0), 2) for step in (100, 160, 220, 280, 340)]
    [1.0, 0.74, 0.75, 0.76, 0.76]
    """

    def __init__(self) -> None:
        self._since: int | None = None
        self._last: int | None = None
        self._fresh: deque[int] = deque()
        self._episodes = 0

    def beyond(self, step: int, surprise: float) -> float:
        """Surprise of a record, at least 0, less what the run's base rate explains; infinite if it is infinite.

        Parameters
        ----------
        step
            Of the record. The first one that is given is where the statistic was first judged.
        surprise
            Decades, at least 0; records without any may be left out.
        """
        if self._since is None:
            self._since = step
        if not surprise:
            return 0.0
        if self._last is None or step - self._last > REARM_STEPS:
            self._fresh.append(step)
        self._last = step
        known = step - REARM_STEPS  # an episode counts from then on, so that no fault is its own excuse
        while self._fresh and self._fresh[0] <= known:
            self._fresh.popleft()
            self._episodes += 1
        expected = EVERYDAY_PER_STEP * max(0, known - self._since)
        ratio = (self._episodes + 1.0) / (expected + 1.0)
        return max(0.0, surprise - math.log10(ratio)) if ratio > 1.0 else surprise
