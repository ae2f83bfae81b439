"""Series of a run for tests of trend and level: finite values, shortened, in blocks."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from rmetric.measurements import LARGEST
from rmetric.records import Observations

Floats = NDArray[np.float64]
LEAST_THE_SAME, DECIMALS = 20, 2
"""Records that are enough where each has the same loss, of more decimals than that: 2.3 may be rounded."""


LATEST = 5
"""Losses whose median is where a run stands."""


class Series(NamedTuple):
    """Values of one measurement where it is finite; both of shape (n,)."""

    steps: NDArray[np.int64]
    values: Floats

    def __len__(self) -> int:  # of records, not of fields
        return len(self.steps)

    def part(self, rows: slice) -> Series:
        """Some consecutive values."""
        return Series(self.steps[rows], self.values[rows])

    def blocks(self, most: int, least: int = 1) -> Series:
        """Medians of up to ``most`` consecutive blocks of at least ``least`` values, each at the step of its first.

        Blocks of an even number of values, or of one, since the median of an odd number takes sides where values of two
        levels come in turn; of an odd number of values in all the first is left out.
        """
        count = max(1, min(most, len(self) // least))
        if len(self) <= count:
            return self
        count = min(count, len(self) // 2)
        pairs, longer = divmod(len(self) // 2, count)  # the first blocks are longer by two
        begin, size = len(self) % 2, 2 * pairs
        turn = begin + longer * (size + 2)
        parts = (slice(begin, turn), size + 2), (slice(turn, None), size)
        rows = [(self.steps[part].reshape(-1, length), self.values[part].reshape(-1, length)) for part, length in parts]
        return Series(
            np.concatenate([steps[:, 0] for steps, _ in rows]),
            np.concatenate([np.median(values, axis=1) for _, values in rows]),
        )


def since_planned(observations: Observations) -> Observations:
    """The records since the latest change of the training that was announced."""
    announced = np.flatnonzero(observations.announced)
    return observations.rows(slice(int(announced[-1]), None)) if len(announced) else observations


def finite(observations: Observations, name: str) -> Series:
    """Finite values of a measurement; of the validation loss, at new evaluations."""
    values = observations.stated(name)
    usable = np.isfinite(values)
    return Series(observations.step[usable], np.clip(values[usable], -LARGEST, LARGEST))


def stands_at(losses: Floats) -> float:
    """Median of the last losses: where a run stands."""
    return float(np.median(losses[-LATEST:]))


def is_exact(loss: float) -> bool:
    """Whether a loss is stated to so many decimals that another one would differ."""
    return round(loss, DECIMALS) != loss


def surprise(p: float) -> float:
    """−log10 of a p-value, at most 300."""
    return -math.log10(max(p, 1e-300))


def are_negative(values: Floats) -> float:
    """p-value of values below 0 on average by Student's test, one-sided; small: they are. 0 or 1 if all are alike.

    >>> round(are_negative(np.array([-1.0, -2.0, -3.0])), 2), are_negative(np.array([-1.0, -1.0]))
    (0.04, 0.0)
    """
    from scipy.stats import ttest_1samp  # half a second to import, and most logs are read without it

    if np.ptp(values) == 0.0:
        return float(values[0] >= 0.0)
    return float(ttest_1samp(values, 0.0, alternative="less").pvalue)


def falls(series: Floats) -> float:
    """p-value of a falling trend by Mann and Kendall's test (Kendall's τ with time); small: it falls."""
    return _trend(series, "less")


def rises(series: Floats) -> float:
    """p-value of a rising trend by Mann and Kendall's test; small: it rises."""
    return _trend(series, "greater")


def lie_above(some: Floats, others: Floats) -> float:
    """p-value of Mann and Whitney's test; small: some values lie above the others."""
    from scipy.stats import mannwhitneyu  # half a second to import, and most logs are read without it

    return float(mannwhitneyu(some, others, alternative="greater").pvalue)


def _trend(series: Floats, alternative: str) -> float:
    from scipy.stats import kendalltau  # half a second to import, and most logs are read without it

    if len(series) < 2 or series.min() == series.max():
        return 1.0
    return float(kendalltau(np.arange(len(series)), series, alternative=alternative).pvalue)


def least_rise(series: Floats) -> float:
    """Lower bound of the rise of a line through a series, from the first to the last (Theil and Sen)."""
    from scipy.stats import theilslopes

    return float(theilslopes(series).low_slope) * (len(series) - 1)


def levels(series: Floats, values: int) -> Floats:
    """Medians of so many consecutive values, one after the other."""
    return np.asarray(np.median(sliding_window_view(series, values), axis=1))


def noise(series: Floats) -> float:
    """Standard deviation of what is independent from value to value, from their differences; robust.

    .. math:: s = 1.4826 \\, \\mathrm{median}|d - \\tilde d| / \\sqrt 2, \\quad d_i = x_{i+1} - x_i
    """
    from scipy.stats import median_abs_deviation

    return float(median_abs_deviation(np.diff(series), scale="normal")) / np.sqrt(2.0) if len(series) > 2 else np.nan
