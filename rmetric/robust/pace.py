"""How much slower a run has become."""

from __future__ import annotations

import math
from collections import deque
from statistics import median

from rmetric.robust.reference import SortedWindow

RECENT = 5
"""Records that make the present pace: of a shared machine's slow steps, hardly ever three of five come together."""


class Pace:
    r"""Logarithm of the present pace over the usual one: a factor, whatever the scatter of the steps before.

    .. math:: \tilde{x}_{t-4 \dots t} - \tilde{x}_{\text{the window before}}, \qquad x = \ln(\text{seconds a step})

    A z-score would not do here. Where steps take the same time to within a per cent, every change is many scales; where
    a machine is shared none is. What matters is the factor.

    Parameters
    ----------
    window, warm_up
        Values that make the usual pace, and that must be there before the first score.

    >>> pace = Pace(window=20, warm_up=10)
    >>> for _ in range(15):
    ...     _ = pace.update(math.log(0.02))
    >>> [round(pace.update(math.log(0.06)), 1) for _ in range(4)]
    [0.0, 0.0, 1.1, 1.1]
    """

    def __init__(self, *, window: int, warm_up: int) -> None:
        self._warm_up = warm_up
        self._usual = SortedWindow(window)
        self._recent: deque[float] = deque()

    def update(self, log_time: float) -> float:
        """The factor's logarithm with the next value; NaN for one that was not measured and during the warm-up."""
        if not math.isfinite(log_time):
            return log_time
        self._recent.append(log_time)
        if len(self._recent) > RECENT:
            self._usual.add(self._recent.popleft())
        return median(self._recent) - self._usual.middle if len(self._usual) >= self._warm_up else math.nan
