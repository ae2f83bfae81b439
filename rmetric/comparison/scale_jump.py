"""First record at which a series of differences jumps to another order of magnitude, whatever its mean."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from rmetric.comparison.change_point import WARM_UP, ChangePoint, best_split, measured
from rmetric.robust.reference import NORMAL

Floats = NDArray[np.float64]
BEFORE, AFTER = 8, 16
"""Values beside a jump that are compared. What grows by less than a factor of 1.5 from value to value makes no jump:
over so few values it grows too little."""
AT_ONCE = 100_000
"""Windows that are sorted together: that takes memory."""
JUMP = 3.0
"""Logarithm by which the quartiles lie apart. The highest of 360 pairs of healthy runs of other seeds are 0.8 (training
loss), 1.1 (gradient norm), 1.5 (variance of the gradients) and 1.8 (update RMS; ``python -m studies.compare --half all
--fit``); noise that becomes 300 times as large jumps by 3.9 in the median."""


def scale_jump(values: Floats, smallest: float) -> ChangePoint | None:
    """The first jump of the magnitude of a series, shape (n,); ``None`` if there is none.

    .. math::
        q_{0.25}(\\ln |x_t|, \\dots, \\ln |x_{t+15}|) - q_{0.75}(\\ln |x_{t-8}|, \\dots, \\ln |x_{t-1}|) > 3 + g_t

    with g the growth before: the median of those eight logarithms over the lowest median of any 32 before, 0 at least.
    Rounding errors of one seed grow exponentially, in fits and starts; a jump of what has grown has to exceed that. It
    begins where the logarithms around it part best into two levels (least squares). NaN is left out; an infinite value
    ends the series: it is a change of the mean.

    Parameters
    ----------
    smallest
        Magnitude below which none is told apart from 0.

    Examples
    --------
    >>> noise = np.random.default_rng(0).normal(size=300)
    >>> scale_jump(noise, 1e-9), scale_jump(np.append(1e-5 * noise, noise), 1e-9).begin
    (None, 300)
    """
    rows, logs = _logarithms(values, smallest)
    high = np.flatnonzero(_gaps(logs) > JUMP)
    if not len(high):
        return None
    first = WARM_UP + int(high[0])
    begin = max(WARM_UP, first - BEFORE + best_split(logs[first - BEFORE : first + AFTER]))
    noise = NORMAL * float(np.median(np.abs(values[rows[begin - WARM_UP : begin]])))
    alarm = min(begin + AFTER, len(rows)) - 1
    return ChangePoint(int(rows[begin]), int(rows[alarm]), max(noise, smallest))


def highest_jump(values: Floats, smallest: float) -> float:
    """The highest jump of a series: the threshold that it would have just kept; 0: none is that high, or too short."""
    return float(_gaps(_logarithms(values, smallest)[1]).max(initial=0.0))


def _logarithms(values: Floats, smallest: float) -> tuple[NDArray[np.intp], Floats]:
    """Indices of the values that are judged, and the logarithms of their magnitudes."""
    rows = measured(values)
    return rows, np.log(np.maximum(np.abs(values[rows]), max(smallest, 1e-300)))


def _gaps(logs: Floats) -> Floats:
    """Jump at each value after the warm-up, less the growth before it."""
    if len(logs) < WARM_UP + AFTER:
        return np.empty(0)
    after = _ranked(logs[WARM_UP:], AFTER, AFTER // 4 - 1)
    before = _ranked(logs[WARM_UP - BEFORE : -AFTER], BEFORE, BEFORE - BEFORE // 4)
    lowest = np.minimum.accumulate(_medians(logs[:-AFTER], WARM_UP))
    growth = np.maximum(_medians(logs[WARM_UP - BEFORE : -AFTER], BEFORE) - lowest, 0.0)
    return np.asarray(after - before - growth)


def _medians(values: Floats, window: int) -> Floats:
    """Median of each so many consecutive values, an even number."""
    return 0.5 * (_ranked(values, window, window // 2 - 1) + _ranked(values, window, window // 2))


def _ranked(values: Floats, window: int, rank: int) -> Floats:
    """The value of one rank, from 0 on, of each so many consecutive values."""
    windows = sliding_window_view(values, window)
    parts = np.array_split(windows, 1 + len(windows) // AT_ONCE)
    return np.concatenate([np.partition(part, rank, axis=1)[:, rank] for part in parts])
