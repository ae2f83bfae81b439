"""References of :mod:`rmetric.robust` over whole columns, compiled: the same bits.

Each function goes on from the state of a streaming object, and leaves it as that object would have. What it computes
stands with the class, which works record by record and needs no compiler. Importing this module imports Numba (half a
second).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmetric.compiled import compiled
from rmetric.robust.context import FIRST_LINE, RANGE, LearningCurve, line_at, loss_floor
from rmetric.robust.gradients import PLATEAU_RECORDS, UPDATE_FLOOR, Update
from rmetric.robust.hardware import SLOWDOWN_RECORDS, Slowdown
from rmetric.robust.loss import (
    FIRST_CHANGES,
    LEAP_CHANGES,
    LEAP_SHARE,
    LOST_RECORDS,
    START_RECORDS,
    Lost,
    lost_unit,
)
from rmetric.robust.reference import (
    CLIP,
    NORMAL,
    UPPER,
    RobustReference,
    RobustTrend,
    SortedWindow,
    UpperReference,
    deviation_of,
    doubt,
    grown,
    middle_of,
)
from rmetric.robust.surprise import (
    ALARMING,
    NOTABLE,
    OUTLASTING_RECORDS,
    OUTLASTS,
    OwnBar,
    Tail,
    remembered,
    surprise_of,
)

Column = NDArray[np.float64]

TAILS = np.array(UPPER)
NO_TAILS = np.zeros((0, 2))
TAILS.flags.writeable = NO_TAILS.flags.writeable = False  # as constants are, or `_judge` is compiled for both


class Window(NamedTuple):
    """Arrays of a :class:`~rmetric.robust.reference.SortedWindow`."""

    recent: NDArray[np.float64]
    ordered: NDArray[np.float64]
    place: NDArray[np.int64]
    """Where the next value goes in ``recent``, and how many there are."""


@contextmanager
def _arrays(*windows: SortedWindow) -> Iterator[list[Window]]:
    """The arrays of windows, which have afterwards what is in them."""
    arrays = [_taken(values) for values in windows]
    yield arrays
    for values, window in zip(windows, arrays, strict=True):
        values.refill(_in_turn(window.recent, window), window.ordered[: window.place[1]].tolist())


def _taken(values: SortedWindow) -> Window:
    recent, ordered = values.contents
    window = Window(
        np.empty(values.length), np.empty(values.length), np.array([len(recent) % values.length, len(recent)])
    )
    window.recent[: len(recent)], window.ordered[: len(recent)] = recent, ordered
    return window


def _in_turn(ring: NDArray[Any], window: Window) -> list[Any]:
    """What stands beside the recent values of a window, the oldest first."""
    following, count = window.place.tolist()
    return (np.roll(ring, -following) if count == len(ring) else ring[:count]).tolist()  # type: ignore[no-any-return]


@compiled
def _add(window, value):
    recent, ordered, place = window.recent, window.ordered, window.place
    head, count = place[0], place[1]
    # To count what is smaller takes no branch, and so less time than to search.
    after = 0
    for index in range(count):
        after += ordered[index] <= value
    gap = count
    if count == len(recent):
        oldest = recent[head]
        gap = 0
        for index in range(count):
            gap += ordered[index] < oldest
        after -= oldest <= value
    else:
        place[1] = count + 1
    for index in range(gap, after):
        ordered[index] = ordered[index + 1]
    for index in range(gap, after, -1):
        ordered[index] = ordered[index - 1]
    ordered[after] = recent[head] = value
    place[0] = head + 1 if head + 1 < len(recent) else 0


_middle = compiled(middle_of)
_deviation = compiled(deviation_of)
_doubt = compiled(doubt)
_grown = compiled(grown)
_surprise = compiled(surprise_of)
_loss_floor = compiled(loss_floor)
_line_at = compiled(line_at)
_lost_unit = compiled(lost_unit)
_remembered = compiled(remembered)


@compiled
def logarithms(values):
    """:func:`~rmetric.robust.reference.logarithm` of each value. NumPy's own differs in the last bit."""
    result = np.empty(len(values))
    for index in range(len(values)):
        result[index] = math.log(values[index]) if values[index] > 0.0 else np.nan
    return result


@compiled
def _clipped(value, middle, reach):
    """A value as it enters a window: no further from the middle than that."""
    return min(max(value, middle - reach), middle + reach)


@compiled
def _judge(window, value, warm_up, floor, clip, tails):
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
    _add(window, _clipped(value, middle, clip * scale))
    return (value - middle) / scale, middle, scale


def reference(of: RobustReference, values: Column) -> Column:
    """z of each of the next values."""
    tails = TAILS if isinstance(of, UpperReference) else NO_TAILS
    with _arrays(of.values) as (window,):
        z: Column = _reference(window, values, of.warm_up, of.floor, of.clip, tails)
    return z


@compiled
def _reference(window, values, warm_up, floor, clip, tails):
    z = np.empty(len(values))
    for index in range(len(values)):
        z[index] = _judge(window, values[index], warm_up, floor, clip, tails)[0]
    return z


def trend(of: RobustTrend, steps: NDArray[np.int64], values: Column) -> tuple[Column, Column]:
    """z and excess of each of the next values."""
    own_steps, excess, judge = np.empty(of.values.length, np.int64), _unjudged(values), of.errors
    own_steps[: len(of.steps)] = of.steps
    with _arrays(of.values, judge.values) as (window, errors):
        z = _trend(window, errors, own_steps, steps, values, excess, of.first, judge.warm_up, judge.floor, of.growth)
    of.steps.clear()
    of.steps.extend(_in_turn(own_steps, window))
    return z, excess


def _unjudged(values: Column) -> Column:
    """Excess of values before any is judged: of one that is not finite it is the value itself."""
    return np.where(np.isfinite(values), np.nan, values)


@compiled
def _trend(window, errors, own_steps, steps, values, excess, first, warm_up, floor, growth):
    z = values.copy()
    length = len(window.recent)
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
            judged, usual, scale = _judge(errors, error, warm_up, floor, CLIP, NO_TAILS)
            if not np.isnan(judged):
                lag = min(0.0, usual + scale)
                oldest = head if count == length else 0
                half = own_steps[(oldest + (count - 1) // 2) % length]
                rise = _grown(steps[index], half)
                entering = _clipped(value, middle + usual, CLIP * scale)
                excess[index] = error - lag - growth * rise
                z[index] = excess[index] / (scale * _doubt(count))
        own_steps[head] = steps[index]
        _add(window, entering)
    return z


@compiled
def _sum(sums, place, value, times):
    """``LineSums.add``: ``sums`` are origin, count, x, y, xx, xy."""
    x = place - sums[0]
    sums[1] += times
    sums[2] += times * x
    sums[3] += times * value
    sums[4] += times * x * x
    sums[5] += times * x * value


def curve(of: LearningCurve, places: Column, values: Column) -> tuple[Column, Column]:
    """z and excess of each of the next losses, at a ln(step)."""
    points, line = len(of.points), of.sums
    known, entered = np.empty((2, points + len(values)))
    if points:
        known[:points], entered[:points] = zip(*of.points, strict=True)
    sums = np.array([line.origin, line.count, line.x, line.y, line.xx, line.xy])
    span, excess, warm_up = np.array([0, points, of.until_renewed]), _unjudged(values), of.errors.warm_up
    with _arrays(of.errors.values) as (errors,):
        z, of.largest = _curve(errors, known, entered, sums, span, of.largest, places, values, excess, warm_up)
    first, last, of.until_renewed = span.tolist()
    of.points = deque(zip(known[first:last].tolist(), entered[first:last].tolist(), strict=True))
    line.origin, count, line.x, line.y, line.xx, line.xy = sums.tolist()
    line.count = int(count)
    return z, excess


@compiled
def _curve(errors, known, entered, sums, span, largest, places, values, excess, warm_up):
    z = values.copy()
    length = len(errors.recent)
    first, last, until_renewed = span[0], span[1], span[2]  # of the points that make the line
    for index in range(len(values)):
        value, place = values[index], places[index]
        if not np.isfinite(value):
            continue
        z[index] = np.nan
        if last - first >= FIRST_LINE:
            expected = _line_at(place, sums[0], sums[1], sums[2], sums[3], sums[4], sums[5])
            level = abs(sums[3] / sums[1])
            largest = max(largest, level)
            floor = _loss_floor(level, largest)
            error = value - expected
            judged, usual, scale = _judge(errors, error, warm_up, floor, CLIP, TAILS)
            if not np.isnan(judged):
                value = _clipped(value, expected, CLIP * scale)
                excess[index] = error - max(0.0, usual)
                z[index] = excess[index] / (scale * _doubt(sums[1]))
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
    span[0], span[1], span[2] = first, last, until_renewed
    return z, largest


@compiled
def _quantile(window, share):
    return window.ordered[int(share * (window.place[1] - 1))]


@compiled
def _highest(window, count):
    """Highest of the last values, at most so many."""
    highest = -np.inf
    for back in range(min(count, window.place[1])):
        highest = max(highest, window.recent[window.place[0] - 1 - back])
    return highest


def lost(of: Lost, losses: Column) -> tuple[Column, Column]:
    """What is lost at each of the next losses, and where the run stood before it."""
    with _arrays(of.losses, of.stands, of.changes) as windows:
        result, stood, of.start = _lost(*windows, of.start, losses)
    return result, stood


@compiled
def _lost(last, stands, changes, start, losses):
    result, stood = np.empty(len(losses)), np.empty(len(losses))
    stand = _middle(last.ordered[: last.place[1]]) if last.place[1] else np.nan
    for index in range(len(losses)):
        loss, stood[index], result[index] = losses[index], stand, np.nan
        if not np.isfinite(loss):
            continue
        change = loss - last.recent[last.place[0] - 1] if last.place[1] else np.nan
        if changes.place[1] >= FIRST_CHANGES:
            lowest = _quantile(stands, 0.0)
            spread = _quantile(changes, 0.9) - _quantile(changes, 0.1)
            unit = _lost_unit(start, lowest, spread)
            if unit > 0.0:
                least = loss
                for back in range(1, LOST_RECORDS):
                    least = min(least, last.recent[last.place[0] - back])
                rise = least - lowest
                result[index] = rise / (unit * _doubt(changes.place[1]))
                if rise > 0.0 and max(change, _highest(changes, LEAP_CHANGES - 1)) < LEAP_SHARE * rise:
                    result[index] = 0.0
        _add(last, loss)
        if not np.isnan(change):
            _add(changes, change)
        count = last.place[1]
        stand = _middle(last.ordered[:count])
        if count == START_RECORDS:
            start = stand
        if count >= START_RECORDS:
            _add(stands, stand)
    return result, stood, start


def update(of: Update, sizes: Column, growths: Column) -> Column:
    """Score of each of the next log sizes, with the log growth of the rate."""
    with _arrays(of.sizes.values, of.recent) as windows:
        scores, of.largest = _update(*windows, of.largest, sizes, growths, of.sizes.warm_up)
    return scores  # type: ignore[no-any-return]


@compiled
def _update(window, recent, largest, sizes, growths, warm_up):
    scores = np.empty(len(sizes))
    for index in range(len(sizes)):
        size, growth = sizes[index], growths[index]
        z, middle, scale = _judge(window, size, warm_up, UPDATE_FLOOR, CLIP, NO_TAILS)
        scores[index] = z
        entering = size
        if np.isfinite(z):
            announced = size + (growth if growth > 0.0 else 0.0) - max(largest, middle)
            scores[index] = announced / scale
            entering = _clipped(size, middle, CLIP * scale)
        if np.isfinite(size):
            _add(recent, entering)
            if recent.place[1] == PLATEAU_RECORDS:
                largest = max(largest, _middle(recent.ordered))
    return scores, largest


def slowdown(of: Slowdown, log_times: Column) -> Column:
    """Score of each of the next log step times."""
    with _arrays(of.usual, of.recent) as windows:
        scores: Column = _slowdown(*windows, log_times, of.warm_up)
    return scores


@compiled
def _slowdown(usual, recent, log_times, warm_up):
    scores = log_times.copy()
    for index in range(len(log_times)):
        if not np.isfinite(log_times[index]):
            continue
        if recent.place[1] == SLOWDOWN_RECORDS:
            _add(usual, recent.recent[recent.place[0]])
        _add(recent, log_times[index])
        count = usual.place[1]
        ready = count >= warm_up
        scores[index] = _middle(recent.ordered) - _middle(usual.ordered[:count]) if ready else np.nan
    return scores


def surprises(tail: Tail, statistic: Column) -> Column:
    """Surprise of each value of a statistic."""
    bars, found = np.array(tail.bars), np.zeros(len(statistic))
    places = np.flatnonzero(statistic >= (bars[0] if len(bars) else math.inf))  # few: the others are no surprise
    high = statistic[places]
    reached = np.searchsorted(bars, high, side="right")
    found[places] = _surprises(high, reached, bars, np.array(tail.surprises))
    return found


@compiled
def _surprises(statistic, reached, bars, heights):
    result = np.empty(len(statistic))
    for index in range(len(statistic)):
        result[index] = _surprise(statistic[index], reached[index], bars, heights)
    return result


def evidence(of: OwnBar, surprises: Column) -> Column:
    """Evidence of each of the next surprises."""
    heights, counts = np.array([of.raised, of.peak]), np.array([of.quiet, of.returns, of.lasted, of.longest])
    result: Column = _evidence(heights, counts, surprises)
    of.raised, of.peak = heights.tolist()
    of.quiet, of.returns, of.lasted, of.longest = counts.tolist()
    return result


@compiled
def _evidence(heights, counts, surprises):
    result = np.empty(len(surprises))
    raised, peak = heights
    quiet, returns, lasted, longest = counts
    for index in range(len(surprises)):
        surprise = surprises[index]
        lasted += ALARMING < surprise < np.inf
        is_new = lasted > max(OUTLASTS * longest, OUTLASTING_RECORDS)
        result[index] = max(surprise - (0.0 if is_new else raised), 0.0)
        if surprise == np.inf or (surprise <= NOTABLE and peak == 0.0):
            continue
        raised, peak, quiet, returns, lasted, longest = _remembered(
            surprise, raised, peak, quiet, returns, lasted, longest
        )
    heights[0], heights[1] = raised, peak  # a tuple as a whole takes two seconds to compile
    counts[0], counts[1], counts[2], counts[3] = quiet, returns, lasted, longest
    return result
