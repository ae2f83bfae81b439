"""First record from which on the level of a series of differences is another one, for more than its own wander."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from rmetric.comparison.change_point import WINDOW, ChangePoint, best_split, measured
from rmetric.measurements import LARGEST

Floats = NDArray[np.float64]
SMALLEST_BLOCK, AROUND = 32, 8
"""Values of the smallest block, and blocks that a shift must have before it and after it: in the first hundred records
two seeds wander most."""
TRIMMED = 0.25
"""Share of a block left out at either end for its level: a mean that outliers do not move."""
VARIANCE = 1.2
"""Variance of that mean for normal noise, in units of that of the plain mean."""
LEAST = 1.0
"""Smallest shift, in deviations from value to value."""
SIGNIFICANCE = 0.001
"""Chance of a shift in a series whose wander is the same all along, all its contrasts together. Of 360 pairs of
healthy runs of other seeds none has a candidate (−log10 p is 0: ``python -m studies.compare --half all --fit``)."""


def level_shift(values: Floats, smallest: float) -> ChangePoint | None:
    """The first shift of the level of a series that lasts, shape (n,); ``None`` if there is none.

    .. math:: r_k = (L_{k+2} - L_k) / s_k, \\qquad |r_k| / \\sqrt{\\overline{r_j^2}} > t_{\\alpha, J}

    with L the trimmed means of consecutive blocks of 32, 64, 128, … values, s the noise from value to value in those
    three blocks, and in the reference all J contrasts r_j of this size that have no block of r_k.
    Two seeds wander apart by about the same in each block: that makes the reference, autocorrelation included. In units
    of s it also holds for rounding errors that grow. A shift is as large as s at least, and more than half of it
    parts each of the eight blocks before from L_{k+2}, and each of the eight after from L_k.

    **Source:** Student's t-test of one contrast against the others, Bonferroni's correction over all of them.
    **Deviation:** contrasts that have a block in common are taken for independent. In random walks of 10,000 values, of
    which that is least true, one in a hundred has a shift.

    Parameters
    ----------
    smallest
        Smallest deviation of the noise, in units of the values.

    Examples
    --------
    >>> noise, late = np.random.default_rng(0).normal(size=4000), np.arange(4000) >= 1000
    >>> level_shift(noise, 1e-6), level_shift(np.cumsum(noise), 1e-6)
    (None, None)
    >>> shift = level_shift(noise + 2.0 * late, 1e-6)
    >>> shift.begin, round(shift.shift, 1)
    (1000, 2.2)
    """
    rows = measured(values)
    bounded = np.clip(values[rows], -LARGEST, LARGEST)
    found = [_shift(bounded, size, smallest) for size in _sizes(len(rows))]
    first = min((shift for shift in found if shift), default=None)
    return first and first._replace(begin=int(rows[first.begin]), alarm=int(rows[first.alarm]))


def lowest_chance(values: Floats, smallest: float) -> float:
    """The lowest p-value of a shift in a series, of all contrasts together; 1: none is as large, or it is too short."""
    judged = np.clip(values[measured(values)], -LARGEST, LARGEST)
    return min((float(_chances(judged, size, smallest).min()) for size in _sizes(len(judged))), default=1.0)


def _sizes(count: int) -> list[int]:
    """Sizes of blocks of which so many values have enough."""
    most = count // (2 * AROUND + 2)
    return [SMALLEST_BLOCK << power for power in range(max(most // SMALLEST_BLOCK, 0).bit_length())]


def _shift(values: Floats, size: int, smallest: float) -> ChangePoint | None:
    """The first shift between blocks of one size."""
    from scipy.stats import median_abs_deviation  # half a second to import, and most logs are read without it

    found = np.flatnonzero(_chances(values, size, smallest) <= SIGNIFICANCE)
    if not len(found):
        return None
    first = (AROUND + int(found[0])) * size
    around = values[first : first + 3 * size]
    low, high = np.quantile(around, [0.05, 0.95])
    begin = first + best_split(np.clip(around, low, high))
    end = first + (2 + AROUND) * size
    before = values[max(begin - WINDOW, 0) : begin]
    noise = float(median_abs_deviation(before, scale="normal"))
    return ChangePoint(begin, end - 1, max(noise, smallest), float(np.median(values[begin:end]) - np.median(before)))


def _chances(values: Floats, size: int, smallest: float) -> Floats:
    """p-value of a shift from each block that has eight around it to the second next; 1 if it is small or passes."""
    from scipy.stats import median_abs_deviation, t, trim_mean

    blocks = values[: len(values) // size * size].reshape(-1, size)
    levels = trim_mean(blocks, TRIMMED, axis=1)
    variances = 0.5 * median_abs_deviation(np.diff(blocks, axis=1), scale="normal", axis=1) ** 2
    noise = np.sqrt((variances[2:] + variances[1:-1] + variances[:-2]) / 3.0)
    moved = levels[2:] - levels[:-2]
    contrasts = np.clip(moved / np.maximum(noise, max(smallest, 1.0 / LARGEST)), -LARGEST, LARGEST)
    beside = np.convolve(contrasts**2, np.ones(3), "same")  # itself, and those that have a block of it
    apart = len(contrasts) - 3
    reference = np.sqrt(np.maximum((np.sum(contrasts**2) - beside) / apart, 2.0 * VARIANCE / size))
    tests = 2 * len(values) / SMALLEST_BLOCK  # of all sizes: each has half as many as the one before
    chances = np.minimum(2.0 * t.sf(np.abs(contrasts) / reference, apart) * tests, 1.0)
    judged = slice(AROUND, len(contrasts) - AROUND + 1)
    sign, eight = np.sign(moved[judged, None]), sliding_window_view(levels, AROUND)
    after = sign * (eight[AROUND + 2 :] - levels[judged, None])
    before = sign * (levels[2:][judged, None] - eight[1 : 1 + len(after)])
    left = np.minimum(after.min(axis=1), before.min(axis=1))
    lasts = (left > 0.5 * np.abs(moved[judged])) & (np.abs(contrasts[judged]) >= LEAST)
    return np.where(lasts, chances[judged], 1.0)
