"""One signal, and what may be suspicious about it: a jump, a jump that stays, a drift."""

from __future__ import annotations

import math
from typing import NamedTuple

from rmetric.robust.cusum import Cusum
from rmetric.robust.trend import RobustTrend

WINDOW, WARM_UP = 96, 72
"""Records that make level and scale, and that must have been there before the first score. They are records and not
steps, because a record is one draw of the noise however many steps it summarises."""
CLIP = 5.0
"""Scales from its level at which a value enters the window: beyond nearly all noise, below what harms."""
CAP, CEILING = 3.0, 60.0
"""Of the drift: what one record counts at most, so that it takes several to raise an alert, and the sum at most."""


class Suspicion(NamedTuple):
    """What one record shows of a signal; NaN where it cannot be judged, infinity for a value that is not finite."""

    jump: float
    """Robust z of this record."""
    lasting: float
    """Smaller one of this record's z and the one before: what a single bad batch does not raise."""
    drift: float
    """CUSUM of the z's."""


class Shifts:
    """What a sequence of robust z's shows: a jump, a jump that stays, a drift; upward only.

    Parameters
    ----------
    allowance
        Of the drift's CUSUM, in scales: half the smallest shift that is looked for (Page's optimum).

    A value that was not measured is no evidence: it leaves the drift where it was, and the other two are NaN.

    >>> shifts = Shifts(allowance=0.5)
    >>> [tuple(shifts.update(z)) for z in (1.0, 9.0, -2.0)]
    [(1.0, nan, 0.5), (9.0, 1.0, 3.0), (-2.0, -2.0, 0.5)]
    """

    def __init__(self, *, allowance: float) -> None:
        self._drift = Cusum(allowance=allowance, cap=CAP, ceiling=CEILING)
        self._before = math.nan

    def update(self, jump: float, *, planned: bool = False) -> Suspicion:
        """Judge the next z; ``planned``: where a change is expected, it does not add to the drift."""
        before, self._before = self._before, jump
        drift = self._drift.update(math.nan if planned and jump < math.inf else jump)
        return Suspicion(jump, min(jump, before) if before == before else math.nan, drift)


class Signal:
    """A signal against what its own past makes one expect.

    Parameters
    ----------
    floor
        Smallest scale, in units of the signal.
    allowance
        As for :class:`Shifts`.

    >>> signal = Signal(floor=0.01, allowance=0.5)
    >>> for t in range(80):
    ...     _ = signal.update(1.0 + 0.01 * (-1) ** t)
    >>> [round(value, 1) for value in signal.update(1.2)]
    [9.0, -2.0, 2.5]
    """

    def __init__(self, *, floor: float, allowance: float, window: int = WINDOW, warm_up: int = WARM_UP) -> None:
        self._trend = RobustTrend(window=window, warm_up=warm_up, floor=floor, clip=CLIP)
        self._shifts = Shifts(allowance=allowance)

    @property
    def excess(self) -> float:
        """How far the last value lay above its expectation, in units of the signal."""
        return self._trend.excess

    @property
    def shortfall(self) -> float:
        """How far the last value lay below its level, in units of the signal."""
        return self._trend.shortfall

    def update(self, value: float, *, planned: bool = False) -> Suspicion:
        """Judge the next value; ``planned``: as for :meth:`Shifts.update`."""
        return self._shifts.update(self._trend.update(value), planned=planned)
