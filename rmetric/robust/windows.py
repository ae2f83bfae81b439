"""References of :mod:`rmetric.robust` over whole columns, compiled: the same bits.

What each of them is stands with the class of its name, which works record by record and needs no compiler. Importing
this module imports Numba (half a second).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from rmetric.robust.context import FIRST_LINE, LARGEST_LOSS, LOSS_FLOOR_SHARE, RANGE
from rmetric.robust.gradients import PLATEAU_RECORDS, UPDATE_FLOOR
from rmetric.robust.hardware import SLOWDOWN_RECORDS
from rmetric.robust.loss import (
    CHANGES_80,
    FIRST_STAND,
    LEARNED_SCALES,
    LOST_SCALES,
    LOST_SHARE,
    NOISE_RECORDS,
    STAND_RECORDS,
    START_RECORDS,
)
from rmetric.robust.reference import CLIP, FIRST_MEDIAN, NORMAL, UPPER, deviation_of, middle_of

TAILS = np.array(UPPER)
NO_TAILS = np.zeros((0, 2))


class Window(NamedTuple):
    """Arrays of a :class:`~rmetric.robust.reference.SortedWindow`."""

    recent: NDArray[np.float64]
    ordered: NDArray[np.float64]
    place: NDArray[np.int64]
    """Where the next value goes in ``recent``, and how many there are."""


@njit(cache=True)
def _window(length):  # type: ignore[no-untyped-def]
    return Window(np.empty(length), np.empty(length), np.zeros(2, np.int64))


@njit(cache=True)
def _add(window, value):  # type: ignore[no-untyped-def]
    recent, ordered, place = window.recent, window.ordered, window.place
    count = place[1]
    if count == len(recent):
        gone = np.searchsorted(ordered, recent[place[0]])
        count -= 1
        for index in range(gone, count):
            ordered[index] = ordered[index + 1]
    at = np.searchsorted(ordered[:count], value, side="right")
    for index in range(count, at, -1):
        ordered[index] = ordered[index - 1]
    ordered[at] = recent[place[0]] = value
    place[0], place[1] = (place[0] + 1) % len(recent), count + 1


_middle = njit(cache=True)(middle_of)
_deviation = njit(cache=True)(deviation_of)


@njit(cache=True)
def _judge(window, value, warm_up, floor, clip, tails):  # type: ignore[no-untyped-def]
    """``RobustReference.update``, with the middle and the scale that a finite value was judged by."""
    if not np.isfinite(value):
        return value, np.nan, np.nan
    ordered = window.ordered[: window.place[1]]
    if len(ordered) < warm_up:
        _add(window, value)
        return np.nan, np.nan, np.nan
    middle = _middle(ordered)
    scale = NORMAL * _deviation(ordered, middle)
    for index in range(len(tails)):
        quantile = ordered[int(tails[index, 0] * (len(ordered) - 1))]
        scale = max(scale, (quantile - middle) / tails[index, 1])
    scale = max(scale, floor)
    _add(window, min(max(value, middle - clip * scale), middle + clip * scale))
    return (value - middle) / scale, middle, scale


@njit(cache=True)
def reference(values, length, warm_up, floor, clip):  # type: ignore[no-untyped-def]
    """z of each value: :class:`~rmetric.robust.reference.RobustReference`."""
    window, z = _window(length), np.empty(len(values))
    for index in range(len(values)):
        z[index] = _judge(window, values[index], warm_up, floor, clip, NO_TAILS)[0]
    return z


@njit(cache=True)
def trend(steps, values, length, warm_up, floor, growth):  # type: ignore[no-untyped-def]
    """z and excess of each value: :class:`~rmetric.robust.reference.RobustTrend`."""
    z, excess = values.copy(), np.where(np.isfinite(values), np.nan, values)
    first = min(FIRST_MEDIAN, max(1, warm_up // 2))
    window, errors, own_steps = _window(length), _window(length), np.empty(length, np.int64)
    for index in range(len(values)):
        value = values[index]
        if not np.isfinite(value):
            continue
        z[index] = np.nan
        head, count = window.place[0], window.place[1]
        entering = value
        if count >= first:
            middle = _middle(window.ordered[:count])
            error = value - middle
            judged, usual, scale = _judge(errors, error, max(1, warm_up - first), floor, CLIP, NO_TAILS)
            if not np.isnan(judged):
                lag = min(0.0, usual + scale)
                oldest = head if count == length else 0
                half = own_steps[(oldest + (count - 1) // 2) % length]
                grown = growth * np.log(max(steps[index], 1) / max(half, 1))
                expected, reach = middle + usual, CLIP * scale
                entering = min(max(value, expected - reach), expected + reach)
                excess[index] = error - lag - grown
                z[index] = excess[index] / scale
        own_steps[head] = steps[index]
        _add(window, entering)
    return z, excess


@njit(cache=True)
def _sum(sums, place, value, times):  # type: ignore[no-untyped-def]
    """``_Sums.add``: ``sums`` are origin, count, x, y, xx, xy."""
    x = place - sums[0]
    sums[1] += times
    sums[2] += times * x
    sums[3] += times * value
    sums[4] += times * x * x
    sums[5] += times * x * value


@njit(cache=True)
def _line(sums, place):  # type: ignore[no-untyped-def]
    x, y = sums[2] / sums[1], sums[3] / sums[1]
    variance = sums[4] / sums[1] - x * x
    slope = (sums[5] / sums[1] - x * y) / variance if variance > 0.0 else 0.0
    return y + min(0.0, slope) * (place - sums[0] - x)


@njit(cache=True)
def curve(places, values, length, warm_up):  # type: ignore[no-untyped-def]
    """z and excess of each loss at a ln(step): :class:`~rmetric.robust.context.LearningCurve`."""
    z, excess = values.copy(), np.where(np.isfinite(values), np.nan, values)
    known, entered = np.empty(len(values)), np.empty(len(values))
    first = last = 0  # of the points that make the line
    sums, until_renewed, errors = np.zeros(6), length, _window(length)
    for index in range(len(values)):
        value, place = values[index], places[index]
        if not np.isfinite(value):
            continue
        z[index] = np.nan
        if last - first >= FIRST_LINE:
            expected = _line(sums, place)
            floor = max(LOSS_FLOOR_SHARE * abs(sums[3] / sums[1]), 1.0 / LARGEST_LOSS**2)
            error = value - expected
            judged, usual, scale = _judge(errors, error, max(1, warm_up - FIRST_LINE), floor, CLIP, TAILS)
            if not np.isnan(judged):
                reach = CLIP * scale
                value = min(max(value, expected - reach), expected + reach)
                excess[index] = error - max(0.0, usual)
                z[index] = excess[index] / scale
        known[last], entered[last] = place, value
        last += 1
        _sum(sums, place, value, 1.0)
        while last - first > 2 * length or (last - first > FIRST_LINE and known[first] < place - RANGE):
            _sum(sums, known[first], entered[first], -1.0)
            first += 1
        until_renewed -= 1
        if until_renewed == 0:
            until_renewed = length
            sums[:] = 0.0
            sums[0] = place
            for point in range(first, last):
                _sum(sums, known[point], entered[point], 1.0)
    return z, excess


@njit(cache=True)
def _quantile(window, share):  # type: ignore[no-untyped-def]
    return window.ordered[int(share * (window.place[1] - 1))]


@njit(cache=True)
def lost(losses):  # type: ignore[no-untyped-def]
    """What is lost at each loss: :class:`~rmetric.robust.loss.Lost`."""
    result, last, stands = np.full(len(losses), np.nan), _window(STAND_RECORDS), _window(NOISE_RECORDS)
    changes, start, before = _window(NOISE_RECORDS), np.nan, np.nan
    for index in range(len(losses)):
        loss = losses[index]
        if not np.isfinite(loss):
            continue
        if stands.place[1]:
            lowest = _quantile(stands, 0.0)
            spread = _quantile(changes, 0.9) - _quantile(changes, 0.1)
            noise = max(spread / CHANGES_80, LOSS_FLOOR_SHARE * abs(lowest))
            learned = start - lowest
            if learned > LEARNED_SCALES * noise:
                result[index] = (min(loss, before) - lowest) / (LOST_SHARE * learned + LOST_SCALES * noise)
        _add(last, loss)
        if not np.isnan(before):
            _add(changes, loss - before)
        before, count = loss, last.place[1]
        if count == START_RECORDS:
            start = _middle(last.ordered[:count])
        if count >= FIRST_STAND:
            _add(stands, _middle(last.ordered[:count]))
    return result


@njit(cache=True)
def update(sizes, growths, length, warm_up):  # type: ignore[no-untyped-def]
    """Score of each log size with the log growth of the rate: :class:`~rmetric.robust.gradients.Update`."""
    scores, window = np.empty(len(sizes)), _window(length)
    recent, remembered, largest = np.empty(PLATEAU_RECORDS), 0, -np.inf
    for index in range(len(sizes)):
        size, growth = sizes[index], growths[index]
        z, middle, scale = _judge(window, size, warm_up, UPDATE_FLOOR, CLIP, NO_TAILS)
        scores[index] = z
        entering = size
        if np.isfinite(z):
            announced = size + (growth if growth > 0.0 else 0.0) - max(largest, middle)
            scores[index] = announced / scale
            entering = min(max(size, middle - CLIP * scale), middle + CLIP * scale)
        if np.isfinite(size):
            recent[remembered % PLATEAU_RECORDS] = entering
            remembered += 1
            if remembered >= PLATEAU_RECORDS:
                largest = max(largest, np.sort(recent)[PLATEAU_RECORDS // 2])
    return scores


@njit(cache=True)
def slowdown(log_times, length, warm_up):  # type: ignore[no-untyped-def]
    """Score of each log step time: :class:`~rmetric.robust.hardware.Slowdown`."""
    scores, usual = log_times.copy(), _window(length)
    recent, seen = np.empty(SLOWDOWN_RECORDS), 0
    for index in range(len(log_times)):
        if not np.isfinite(log_times[index]):
            continue
        if seen >= SLOWDOWN_RECORDS:
            _add(usual, recent[seen % SLOWDOWN_RECORDS])
        recent[seen % SLOWDOWN_RECORDS] = log_times[index]
        seen += 1
        count = usual.place[1]
        ready = count >= warm_up
        scores[index] = _middle(np.sort(recent)) - _middle(usual.ordered[:count]) if ready else np.nan
    return scores
