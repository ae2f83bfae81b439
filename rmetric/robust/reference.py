"""Running references of a signal that outliers cannot move, and the evidence of several records."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import islice
from operator import add

import numpy as np
from numpy.typing import NDArray

WINDOW, WARM_UP = 96, 32
"""Records that make level and scale, and that must have been there before the first score. They are records and not
steps, because a record is one draw of the noise however many steps it summarises."""
CLIP = 5.0
"""Scales from its level at which a value enters the window: beyond nearly all noise, below what harms."""
NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation. Not SciPy's, of more decimals: the
bars are fitted to scores that were made with this one, and another would change every score by 1.5 millionths."""
UPPER = ((0.9, 1.2816), (0.97, 1.8808))
"""Quantiles above the median from which the scale is taken as well, and those of a standard normal distribution."""
FIRST_MEDIAN = 16
"""Values before the first difference to a median is taken."""
LEVEL_RECORDS, LEVEL_CAP = 8, 3.0
"""Records of a lasting rise, and scales that one of them counts at most, so that no single one makes it."""
FEW = 4.0 * LEVEL_RECORDS
"""The end of a line through n draws of noise has 4 / n of their variance. It is the same for all eight records of a
level, and so counts as many times. (With half as much 131 false alarms were 135, with twice as much they were 131.)"""


def middle_of(ordered: Sequence[float] | NDArray[np.float64]) -> float:
    """Median of values in their order, one at least."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else 0.5 * (ordered[half - 1] + ordered[half])


def deviation_of(ordered: Sequence[float] | NDArray[np.float64], middle: float) -> float:
    """Median of the absolute deviations of values, in their order, from ``middle``.

    The values nearest to it stand side by side, so that a binary search finds them.
    """
    count = len(ordered)
    near = (count + 1) // 2
    low, high = 0, count - near
    while low < high:
        half = (low + high) // 2
        if middle - ordered[half] > ordered[half + near] - middle:
            low = half + 1
        else:
            high = half
    last = max(abs(ordered[low] - middle), abs(ordered[low + near - 1] - middle))
    if count % 2:
        return last
    below = abs(ordered[low - 1] - middle) if low else math.inf
    above = abs(ordered[low + near] - middle) if low + near < count else math.inf
    return 0.5 * (last + min(below, above))


def doubt(records: int) -> float:
    """Factor by which a scale is widened where so few records say what to expect.

    >>> [round(doubt(records), 2) for records in (16, 32, 96, 192)]
    [1.73, 1.41, 1.15, 1.08]
    """
    return math.sqrt(1.0 + FEW / records)


class SortedWindow:
    """The last ``length`` values, in their order too: their median, and the deviation from it, at any time.

    >>> window = SortedWindow(3)
    >>> for value in (9.0, 1.0, 2.0, 4.0):
    ...     window.add(value)
    >>> window.middle, window.deviation(window.middle)
    (2.0, 1.0)
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._recent)

    def add(self, value: float) -> None:
        """Remember a finite value, and forget the oldest one if there are too many."""
        if len(self._recent) == self.length:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]
        self._recent.append(value)
        insort(self._sorted, value)

    @property
    def oldest(self) -> float:
        """The value that is forgotten first."""
        return self._recent[0]

    def latest(self, count: int) -> Iterable[float]:
        """The last values, at most so many, the latest first."""
        return islice(reversed(self._recent), count)

    @property
    def contents(self) -> tuple[list[float], list[float]]:
        """The values, the oldest first, and in their order."""
        return list(self._recent), self._sorted

    def refill(self, recent: Sequence[float], ordered: Sequence[float]) -> None:
        """Remember these :attr:`contents` instead."""
        self._recent, self._sorted = deque(recent), list(ordered)

    @property
    def middle(self) -> float:
        """Median; at least one value is needed."""
        return middle_of(self._sorted)

    def quantile(self, share: float) -> float:
        """Value that ``share`` of the values do not exceed, the lower one of two; at least one value is needed."""
        return self._sorted[int(share * (len(self._sorted) - 1))]

    def deviation(self, middle: float) -> float:
        """Median of the absolute deviations from ``middle``."""
        return deviation_of(self._sorted, middle)


class RobustReference:
    """Median and MAD of the last ``window`` values; a value is judged before it enters, and enters clipped.

    .. math:: z = (x - \\tilde{x}) / \\max(1.4826 \\, MAD, floor)

    An update costs O(log window) comparisons and one shift of a short list, about 3 µs.

    Parameters
    ----------
    window, warm_up
        Values that are remembered, and that must be there before the first score.
    floor
        Smallest scale: a signal that hardly moves is not to alarm anybody by a little.
    clip
        A value enters at most this many scales away from the median, so that an outlier never raises its own bar.

    Examples
    --------
    >>> reference = RobustReference(window=8, warm_up=4, floor=0.1, clip=5.0)
    >>> [reference.update(x) for x in (1.0, 1.1, 0.9, 1.0, 2.0)]
    [nan, nan, nan, nan, 10.0]
    """

    def __init__(self, *, window: int, warm_up: int, floor: float, clip: float) -> None:
        self.warm_up, self.floor, self.clip = warm_up, floor, clip
        self.middle = self.scale = math.nan
        """Median and scale that the latest value was judged by; NaN during the warm-up."""
        self.values = SortedWindow(window)
        """The last values, clipped."""

    def update(self, value: float) -> float:
        """z of the next value; NaN for one that was not measured and during the warm-up, infinity for infinity."""
        if not math.isfinite(value):
            return value
        if len(self.values) < self.warm_up:
            self.values.add(value)
            return math.nan
        self.middle = middle = self.values.middle
        self.scale = scale = max(self._scale(middle), self.floor)
        self.values.add(min(max(value, middle - self.clip * scale), middle + self.clip * scale))
        return (value - middle) / scale

    def _scale(self, middle: float) -> float:
        return NORMAL * self.values.deviation(middle)


class UpperReference(RobustReference):
    """The same with a scale that also covers the upper tail of the window.

    .. math:: \\max(1.4826 \\, MAD, (q_{0.9} - \\tilde{x}) / 1.28, (q_{0.97} - \\tilde{x}) / 1.88)

    For a normal distribution all three are its standard deviation. Where a value now and then lies on a second level
    the MAD does not see it, and each of these would be an outlier for ever.

    >>> reference = UpperReference(window=32, warm_up=20, floor=0.1, clip=5.0)
    >>> scores = [reference.update(3.0 if t % 8 == 7 else 0.01 * (t % 3)) for t in range(32)]
    >>> round(max(scores[20:]), 1)
    1.9
    """

    def _scale(self, middle: float) -> float:
        scales = [(self.values.quantile(share) - middle) / normal for share, normal in UPPER]
        return max(super()._scale(middle), *scales)


def logarithm(value: float) -> float:
    """ln of a scale; infinity stays, and NaN (nothing to be compared) is for 0 and below, which is no matter of size.

    >>> [logarithm(x) for x in (1.0, float("inf"), 0.0)]
    [0.0, inf, nan]
    """
    return math.log(value) if value > 0.0 else math.nan


def _middle_step(steps: Sequence[int]) -> int:
    """The step in the middle of a window, whose steps come in their order; at least one is needed."""
    return steps[(len(steps) - 1) // 2]


def grown(step: int, before: int) -> float:
    """ln of how many times as large a step number is as one before it."""
    return math.log(max(step, 1) / max(before, 1))


class Held:
    """What the last deviations share: the smallest of them.

    Where each may be anything, the smallest of several is what none of them is without.

    >>> held = Held(3)
    >>> [held.update(z) for z in (5.0, 2.0, math.nan, 3.0, -1.0)][3:]
    [2.0, -1.0]
    """

    def __init__(self, records: int) -> None:
        self.recent: deque[float] = deque(maxlen=records)

    def update(self, z: float) -> float:
        """The smallest with the next deviation, NaN until there are enough; one that is NaN is left out."""
        if z != z:
            return math.nan
        self.recent.append(z)
        return min(self.recent) if len(self.recent) == self.recent.maxlen else math.nan


class Level:
    """Mean of the last eight deviations, or the smallest of them where that is larger.

    One record may be anything: a bad batch, a rare example, a stray measurement. Each counts in the mean within
    ± :data:`LEVEL_CAP`, so that it takes several to make it large. What all eight share is no accident of one, however
    large it is.

    >>> level = Level()
    >>> [round(level.update(z), 2) for z in (1.0, 4.0, 3.0, 0.0, 9.0, math.nan, 0.0, 0.0, 0.0, 0.0)][-3:]
    [nan, 1.25, 1.12]
    >>> [level.update(8.0) for _ in range(8)][-2:]
    [2.625, 8.0]
    """

    def __init__(self) -> None:
        self.capped: deque[float] = deque(maxlen=LEVEL_RECORDS)
        self.held = Held(LEVEL_RECORDS)

    def update(self, z: float) -> float:
        """The mean with the next deviation, NaN until there are eight; one that is NaN is left out."""
        if z != z:
            return math.nan
        self.capped.append(min(max(z, -LEVEL_CAP), LEVEL_CAP))
        self.held.recent.append(z)
        if len(self.capped) < LEVEL_RECORDS:
            return math.nan
        mean = reduce(add, self.capped) / LEVEL_RECORDS
        return mean if mean < LEVEL_CAP else min(self.held.recent)  # which is larger only where all are capped


class RobustTrend:
    r"""Median of the past with the trend taken out of the scale, and out of the level where it exceeds the noise.

    .. math::
        e_t &= x_t - \tilde{x}, \qquad \sigma_t = \max(1.4826 \, MAD(e), floor) \\
        z_t &= (e_t - \min(0, \tilde{e} + \sigma_t) - a \ln(t / \tilde{t})) / (\sigma_t \sqrt{1 + 32 / n})

    While a signal falls, its median lies above it by half a window of trend, the same for all of the window: the errors
    e have the noise as their MAD and the lag as their median ẽ. The lag is taken out but for one scale, which is left
    as a margin: a trend that is less than noise cannot be told from it, and a correction by a noisy lag is what drifts
    by itself. A lag upward is not taken out; it is what is looked for. But a signal may rise as a power of the step
    number, by ln(t / t̃) times the power a since the step t̃ in the middle of the window: at the beginning of a run, or
    of what it does since it was changed on purpose, all that it has done is recent, and nothing is settled; in step
    1000 a window of 96 steps allows a twentieth of a.

    A value enters at most :data:`CLIP` scales away from its expectation, so that an outlier never raises its own bar.
    As a median resists half of its values, a lasting shift is absorbed after half a window and no earlier.

    **Tried and not used:** robust Holt smoothing (Gelper, Fried, Croux 2010). It extrapolates the steep beginning of a
    loss curve for long: the CUSUM of its errors reached 35 to 60 in healthy real runs, where this one stays below 7.

    Parameters
    ----------
    window, warm_up
        Values that are remembered, and that must be there before the first score.
    floor
        Smallest scale.
    growth
        The power a of the step number with which a logarithm may rise; 0 allows nothing.

    Examples
    --------
    >>> trend = RobustTrend(window=32, warm_up=24, floor=0.1, growth=0.0)
    >>> falling = [round(trend.update(t, 5.0 - 0.05 * t + 0.1 * (-1) ** t), 1) for t in range(40)]
    >>> falling[22:26], falling[-2:]
    ([nan, nan, -0.9, -1.9], [-1.0, -1.6])
    """

    def __init__(self, *, window: int, warm_up: int, floor: float, growth: float) -> None:
        self.growth = growth
        self.excess = math.nan
        """The last z in units of the signal: how far the value lay above its expectation."""
        self.first = min(FIRST_MEDIAN, max(1, warm_up // 2))
        """Values before the first error is taken."""
        self.values = SortedWindow(window)
        """The last values, clipped."""
        self.steps: deque[int] = deque(maxlen=window)
        """Step of each of these, the earliest first."""
        self.errors = RobustReference(window=window, warm_up=max(1, warm_up - self.first), floor=floor, clip=CLIP)
        """How far values lay above the median of those before."""

    def update(self, step: int, value: float) -> float:
        """z of the next value; NaN for one that was not measured and during the warm-up, infinity for infinity."""
        self.excess = value if not math.isfinite(value) else math.nan
        if not math.isfinite(value):
            return value
        if len(self.values) < self.first:
            self._add(step, value)
            return math.nan
        middle = self.values.middle
        error = value - middle
        if math.isnan(self.errors.update(error)):
            self._add(step, value)
            return math.nan
        scale = self.errors.scale
        lag = min(0.0, self.errors.middle + scale)
        rise = grown(step, _middle_step(self.steps))
        expected, reach = middle + self.errors.middle, CLIP * scale
        self.excess = error - lag - self.growth * rise
        z = self.excess / (scale * doubt(len(self.values)))
        self._add(step, min(max(value, expected - reach), expected + reach))
        return z

    def _add(self, step: int, value: float) -> None:
        self.steps.append(step)
        self.values.add(value)
