"""First record at which a series leaves its own noise: a two-sided CUSUM with a calibrated bound on false alarms."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmetric.robust.reference import RobustReference

WINDOW, WARM_UP = 192, 32
"""Differences that make the noise, and that must be there before the first is judged."""
CLIP = 5.0
DRIFT, CAP = 0.75, 8.0
"""Deviations, in scales, that a record is allowed, and that it counts at most: one outlier alone is no change."""


class ChangePoint(NamedTuple):
    begin: int
    """Index of its first value."""
    alarm: int
    """Index of the value at which it was certain."""
    noise: float
    """Standard deviation of the latest values before ``begin``, robust (1.4826 MAD)."""
    shift: float = math.nan
    """How far the median has moved where a level lasts; NaN for other changes."""


def change_point(values: NDArray[np.float64], smallest: float, threshold: float) -> ChangePoint | None:
    """The first change of a series, shape (n,); ``None`` if there is none.

    .. math:: S_t = \\max(0, S_{t-1} + \\min(z_t, 8) - 0.75)

    and the same of −z, with z the deviation from median and MAD of the last 192 values. A change is due when S exceeds
    the threshold. It began where, since S was 0 last, the deviations up to there have the largest sum over the root of
    their number: the likeliest place of a jump of the mean. A value that is infinite is a change by itself; NaN is
    left out.

    **Source:** Page 1954, Continuous inspection schemes; Hinkley 1970 for its place; median and MAD in place of known
    mean and deviation.

    Parameters
    ----------
    smallest
        Smallest standard deviation of the noise, in units of the values.
    threshold
        Sum above which a change is due.

    Examples
    --------
    >>> noise = np.random.default_rng(0).normal(size=300)
    >>> change_point(noise, 1e-6, 50.0), change_point(np.append(noise, noise[:40] + 6.0), 1e-6, 50.0).begin
    (None, 300)
    """
    noise = []
    for index, (excursion, scale) in enumerate(_excursions(values, smallest)):
        noise.append(scale)
        if excursion.sum > threshold:
            begin = index + 1 - excursion.likeliest_length()
            return ChangePoint(begin, index, noise[begin])  # later ones hold values of the change
    return None


def certain_after(threshold: float) -> int:
    """Values after the first :data:`WARM_UP` that a change takes at least to exceed a threshold."""
    return math.floor(threshold / (CAP - DRIFT)) + 1


def highest_sum(values: NDArray[np.float64], smallest: float) -> float:
    """The highest sum of a series: the threshold that it would have just kept."""
    return max((excursion.sum for excursion, _ in _excursions(values, smallest)), default=0.0)


def measured(values: NDArray[np.float64]) -> NDArray[np.intp]:
    """Indices of the values that are numbers, up to the first that is infinite: that is a change by itself."""
    infinite = np.flatnonzero(np.isinf(values))
    return np.flatnonzero(~np.isnan(values[: infinite[0]] if len(infinite) else values))


def best_split(values: NDArray[np.float64]) -> int:
    """Length of the first of two parts whose means differ most, for the variance that this leaves in them.

    >>> best_split(np.array([0.1, -0.1, 0.0, 2.1, 1.9]))
    3
    """
    first = np.arange(1, len(values))
    rest = len(values) - first
    sums = np.cumsum(values)
    apart = (sums[-1] - sums[:-1]) / rest - sums[:-1] / first
    return int(np.argmax(first * rest * apart**2)) + 1


@dataclass
class _Excursion:
    """Deviations of one sign since the sum was 0."""

    sum: float = 0.0
    deviations: list[float] = field(default_factory=list)

    def add(self, deviation: float) -> None:
        capped = min(deviation, CAP) if math.isfinite(deviation) else deviation
        self.deviations.append(capped)
        self.sum += capped - DRIFT
        if self.sum <= 0.0:
            self.sum, self.deviations = 0.0, []

    def likeliest_length(self) -> int:
        """Deviations since the likeliest place of the change."""
        if math.isinf(self.sum):
            return 1
        sums = np.cumsum(self.deviations[::-1])
        return int(np.argmax(sums / np.sqrt(np.arange(1, len(sums) + 1)))) + 1


def _excursions(values: NDArray[np.float64], smallest: float) -> Iterator[tuple[_Excursion, float]]:
    """After each value the excursion with the larger sum, and the noise of the values before it."""
    reference = RobustReference(window=WINDOW, warm_up=WARM_UP, floor=max(smallest, 1e-300), clip=CLIP)
    up, down = _Excursion(), _Excursion()
    for value in values.tolist():
        z = reference.update(value)
        if not math.isnan(z):
            up.add(z)
            down.add(abs(z) if math.isinf(z) else -z)
        yield max(up, down, key=lambda excursion: excursion.sum), reference.scale
        if math.isinf(z):
            return
