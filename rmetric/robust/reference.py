"""What is usual for this run: median and MAD of its own past, which a few outliers cannot move."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque

WINDOW, WARM_UP = 96, 72
"""Records that make level and scale, and that must have been there before the first score. They are records and not
steps, because a record is one draw of the noise however many steps it summarises."""
CLIP = 5.0
"""Scales from its level at which a value enters the window: beyond nearly all noise, below what harms."""
NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""


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
    def middle(self) -> float:
        """Median; at least one value is needed."""
        half = len(self._sorted) // 2
        ordered = self._sorted
        return ordered[half] if len(ordered) % 2 else 0.5 * (ordered[half - 1] + ordered[half])

    def deviation(self, middle: float) -> float:
        """Median of the absolute deviations from ``middle``.

        The values nearest to it stand side by side, so that a binary search finds them.
        """
        ordered = self._sorted
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


class RobustReference:
    """Median and MAD of the last ``window`` values; a value is judged before it enters, and enters clipped.

    .. math:: z = (x - \\tilde{x}) / \\max(1.4826 \\, MAD, floor)

    Parameters
    ----------
    window, warm_up
        Values that are remembered, and that must be there before the first score.
    floor
        Smallest scale: a signal that hardly moves is not to alarm anybody by a little.
    clip
        A value enters at most this many scales away from the median, so that an outlier never raises its own bar.

    An update costs O(log window) comparisons and one shift of a short list, about 3 µs.

    >>> reference = RobustReference(window=8, warm_up=4, floor=0.1, clip=5.0)
    >>> [reference.update(x) for x in (1.0, 1.1, 0.9, 1.0, 2.0)]
    [nan, nan, nan, nan, 10.0]
    """

    def __init__(self, *, window: int, warm_up: int, floor: float, clip: float) -> None:
        self.window, self.warm_up, self.floor, self.clip = window, warm_up, floor, clip
        self.middle = self.scale = math.nan
        """What the latest value was judged by; NaN during the warm-up."""
        self._values = SortedWindow(window)

    def update(self, value: float) -> float:
        """z of the next value; NaN for one that was not measured and during the warm-up, infinity for infinity."""
        if not math.isfinite(value):
            return value
        if len(self._values) < self.warm_up:
            self._values.add(value)
            return math.nan
        self.middle = middle = self._values.middle
        self.scale = scale = max(NORMAL * self._values.deviation(middle), self.floor)
        self._values.add(min(max(value, middle - self.clip * scale), middle + self.clip * scale))
        return (value - middle) / scale
