"""Differences of a signal of two runs, in the unit in which they are compared, and what changes in them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmetric.comparison.change_point import WARM_UP, ChangePoint, change_point, highest_sum
from rmetric.comparison.level_shift import level_shift, lowest_chance
from rmetric.comparison.resolution import resolution
from rmetric.comparison.scale_jump import highest_jump, scale_jump
from rmetric.measurements import LARGEST
from rmetric.states.series import noise, surprise

Floats = NDArray[np.float64]
THRESHOLDS = {
    "training_loss": 90.0, "validation_loss": 15.0, "grad_norm": 80.0, "update_rms": 220.0, "sigma_sq": 70.0,
}  # fmt: skip
"""Signal → sum of the change-point above which a difference is more than noise. The highest of 360 pairs of healthy
runs of other seeds are 62.9, 6.9, 57.8, 201.9 and 29.6 (``python -m studies.compare --half all --fit``)."""
POSITIVE = frozenset({"grad_norm", "update_rms", "sigma_sq"})
"""Signals whose logarithms are compared."""
FLOOR, SINGLE = 1e-6, 1e-7
"""Smallest noise whose mean is judged, and smallest difference whose growth is: shares of the usual size of a signal.
Single precision rounds to the second."""
LIMIT, AT_LIMIT, CLIPPED = 0.99, 1e-4, WARM_UP // 2
"""A signal is clipped if both runs have this quantile of it, within such a share, in so many records at a time: where
they are half of a reference, its deviation is 0."""
LEAST_LATE = 64
"""Values of which the mean of the second half is told, at least."""


class Late(NamedTuple):
    """How far two runs lie apart at last."""

    mean: float
    """Of the differences in the second half."""
    noise: float
    """Of a single one of these, from value to value."""


class Differences(NamedTuple):
    """Differences of two columns in the unit in which they are compared."""

    values: Floats
    """Shape (n,); infinite where one alone is not finite."""
    size: float
    """Usual size of the columns."""
    resolution: float
    """What the coarser log tells apart, and the noise of a clipped signal where it is not: most of it is cut off."""

    def at_least(self, share: float) -> float:
        """What counts as no difference: a share of the usual size, and what the log does not tell apart."""
        return max(self.resolution, share * self.size)

    def first_change(self, threshold: float) -> ChangePoint | None:
        """The first change of the mean, by its threshold, of the magnitude, or of a level that lasts."""
        changes = (
            level_shift(self.values, self.at_least(FLOOR)),  # first: of changes of one record it says the most
            change_point(self.values, self.at_least(FLOOR), threshold),
            scale_jump(self.values, self.at_least(SINGLE)),
        )
        return min((change for change in changes if change), key=lambda change: change.begin, default=None)

    @property
    def highest(self) -> tuple[float, float, float]:
        """The highest sum of the change-point, the highest jump, and the lowest p-value of a shift as −log10."""
        least = self.at_least(FLOOR)
        shift = 0.0 + surprise(lowest_chance(self.values, least))  # no -0.0
        return highest_sum(self.values, least), highest_jump(self.values, self.at_least(SINGLE)), shift

    @property
    def late(self) -> Late | None:
        """How far the second half of the finite values lies off 0; ``None``: too few values."""
        finite = np.clip(self.values[np.isfinite(self.values)], -LARGEST, LARGEST)
        half = finite[len(finite) // 2 :]
        return Late(float(np.mean(half)), float(noise(half))) if len(half) >= LEAST_LATE else None


def differences_of(name: str, one: Floats, other: Floats) -> Differences:
    """Differences of two columns of a signal, or of their logarithms."""
    step, size, clipped = np.fmax(resolution(one), resolution(other)), np.abs(one), 0.0
    if name in POSITIVE:
        with np.errstate(divide="ignore", invalid="ignore"):
            step, size = step / size, np.ones(1)
            one, other = np.log(one), np.log(other)
        clipped = _noise_if_clipped(one, other)
    with np.errstate(invalid="ignore"):
        difference = one - other
    difference = np.where(np.isinf(one) != np.isinf(other), np.inf, difference)
    return Differences(difference, _usual(size), max(_usual(step), clipped))


def _noise_if_clipped(*logs: Floats) -> float:
    """Noise of two columns of logarithms below the limit at which both are clipped; 0: they are not."""
    finite = [column[np.isfinite(column)] for column in logs]
    together = np.concatenate(finite)
    limit = np.quantile(together, LIMIT, method="lower") if len(together) else 0.0
    if np.count_nonzero(np.all(np.isclose(logs, limit, rtol=0.0, atol=AT_LIMIT), axis=0)) < CLIPPED:
        return 0.0
    noises = (noise(column[column < limit - AT_LIMIT]) for column in finite)
    return max((one for one in noises if one > 0.0), default=0.0)


def _usual(values: Floats) -> float:
    """Median of the finite values; 0 if there are none."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else 0.0
