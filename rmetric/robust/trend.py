"""What is usual for a signal that falls while training goes well."""

from __future__ import annotations

import math

from rmetric.robust.reference import RobustReference, SortedWindow

FIRST_MEDIAN = 16
"""Values before the first difference to a median is taken."""


class RobustTrend:
    r"""Median of the past with the trend taken out of the scale, and out of the level where it exceeds the noise.

    .. math::
        e_t &= x_t - \tilde{x}, \qquad \sigma_t = \max(1.4826 \, MAD(e), floor) \\
        z_t &= (e_t - \min(0, \tilde{e} + \sigma_t)) / \sigma_t

    While a signal falls, its median lies above it by half a window of trend, the same for all of the window: the errors
    e have the noise as their MAD and the lag as their median ẽ. The lag is taken out but for one scale, which is left
    as a margin: a trend that is less than noise cannot be told from it, and a correction by a noisy lag is what drifts
    by itself. A lag upward is not taken out; it is what is looked for.

    Parameters
    ----------
    window, warm_up
        Values that are remembered, and that must be there before the first score.
    floor
        Smallest scale.
    clip
        A value enters at most this many scales away from its expectation, so that an outlier never raises its own bar.
        As a median resists half of its values, a lasting shift is absorbed after half a window and no earlier.

    **Tried and not used:** robust Holt smoothing (Gelper, Fried, Croux 2010). It extrapolates the steep beginning of a
    loss curve for long: the CUSUM of its errors reached 35 to 60 in healthy real runs, where this one stays below 7.

    >>> trend = RobustTrend(window=32, warm_up=24, floor=0.1, clip=5.0)
    >>> falling = [round(trend.update(5.0 - 0.05 * t + 0.1 * (-1) ** t), 1) for t in range(40)]
    >>> falling[22:26], falling[-2:]
    ([nan, nan, -1.4, -2.9], [-1.4, -2.2])
    """

    def __init__(self, *, window: int, warm_up: int, floor: float, clip: float) -> None:
        self.clip = clip
        self.excess = math.nan
        """The last z in units of the signal: how far the value lay above its expectation."""
        self._first = min(FIRST_MEDIAN, max(1, warm_up // 2))
        self._values = SortedWindow(window)
        self._errors = RobustReference(window=window, warm_up=max(1, warm_up - self._first), floor=floor, clip=clip)

    def update(self, value: float) -> float:
        """z of the next value; NaN for one that was not measured and during the warm-up, infinity for infinity."""
        self.excess = value if not math.isfinite(value) else math.nan
        if not math.isfinite(value):
            return value
        if len(self._values) < self._first:
            self._values.add(value)
            return math.nan
        middle = self._values.middle
        error = value - middle
        if math.isnan(self._errors.update(error)):
            self._values.add(value)
            return math.nan
        scale = self._errors.scale
        lag = min(0.0, self._errors.middle + scale)
        expected, reach = middle + self._errors.middle, self.clip * scale
        self._values.add(min(max(value, expected - reach), expected + reach))
        self.excess = error - lag
        return self.excess / scale
