"""The robust R-Metric of a whole run, by columns: the bits of :class:`~rmetric.robust.metric.Statistics`.

References are compiled (:mod:`rmetric.robust.windows`); what is cheap is left to the very classes that stream.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
from numpy.typing import NDArray

from rmetric.records import Observations, held
from rmetric.robust import windows
from rmetric.robust.context import CADENCE_FACTOR, LARGEST_LOSS, Cadence
from rmetric.robust.gradients import EXPLAINED_PER_NAT, GRADIENT_FLOOR, GRADIENT_GROWTH, UPDATE_FLOOR, Zeros
from rmetric.robust.hardware import JITTER_S, Incidents
from rmetric.robust.loss import UNIFORM_NATS, UniformAnswer
from rmetric.robust.reference import CLIP, LEVEL_CAP, LEVEL_RECORDS, logarithms
from rmetric.robust.surprise import Tail

Column = NDArray[np.float64]


def statistics(observations: Observations, window: int, warm_up: int) -> Column:
    """Statistics of a run from a fresh state, shape (n, statistics), in the order of the components."""
    hardware = np.column_stack(_hardware(observations, window, warm_up))
    parts = [np.column_stack(_training(part, window, warm_up)) for part in _alike(observations)]
    return np.column_stack([hardware, np.concatenate([np.empty((0, 9)), *parts])])


def surprises(tail: Tail, statistic: Column) -> Column:
    """:meth:`Tail.surprise` of each value."""
    result = np.where(statistic == math.inf, math.inf, 0.0)
    if tail.bars:
        bars, heights = np.array(tail.bars), np.array(tail.surprises)
        beyond = np.flatnonzero((statistic >= bars[-1]) & (statistic < math.inf))
        result[beyond] = [tail.surprise(value) for value in statistic[beyond].tolist()]
        between = np.flatnonzero((statistic >= bars[0]) & (statistic < bars[-1]))
        upper = np.searchsorted(bars, statistic[between], side="right")
        share = (statistic[between] - bars[upper - 1]) / (bars[upper] - bars[upper - 1])
        result[between] = heights[upper - 1] + share * (heights[upper] - heights[upper - 1])
    return result


def _alike(observations: Observations) -> Iterator[Observations]:
    """Parts of a run whose records stand for as many steps."""
    interval = np.diff(observations.step)
    if not len(interval) or 0 < interval.max() <= CADENCE_FACTOR * interval.min():  # most runs
        yield observations
        return
    cadence = Cadence()
    begins = [index for index, step in enumerate(observations.step.tolist()) if cadence.changes(step)]
    for begin, end in pairwise([0, *begins, len(observations)]):
        yield observations.rows(slice(begin, end))


def _hardware(observations: Observations, window: int, warm_up: int) -> tuple[Column, ...]:
    times = logarithms(observations["step_time_s"] + JITTER_S)
    return _incidents(observations), windows.slowdown(times, window, warm_up)


def _incidents(observations: Observations) -> Column:
    """Sums of hardware events; nothing has to be added up in a run that has none, as most have."""
    step, columns = observations.step, [observations[name] for name in Incidents.reads]
    events, _, rates = columns
    counted, known = ~np.isnan(events), ~np.isnan(rates)
    if not events[counted].any() and not (rates[known] != rates[known][:1]).any() and (np.diff(step) >= 0).all():
        return np.where(np.logical_or.accumulate(counted | known), 0.0, math.nan)
    incidents = Incidents()
    rows = zip(*(column.tolist() for column in (step, *columns)), strict=True)
    return np.array([incidents.update(*row) for row in rows])


def _training(part: Observations, window: int, warm_up: int) -> tuple[Column, ...]:
    """Statistics of gradients and loss."""
    places, losses = logarithms(np.maximum(part.step, 1.0)), part["training_loss"]
    losses = np.where(np.isfinite(losses), np.clip(losses, -LARGEST_LOSS, LARGEST_LOSS), losses)
    loss_z, loss_excess = windows.curve(places, losses, window, warm_up)
    return (
        *_gradients(part, loss_excess, window, warm_up),
        _last(loss_z)[1],
        windows.lost(losses),
        _uniform(part["uniform_gap"]),
    )


def _gradients(part: Observations, loss_excess: Column, window: int, warm_up: int) -> tuple[Column, ...]:
    broken, norm, size = part["non_finite_count"], part["grad_norm"], part["update_rms"]
    z, excess = windows.trend(part.step, logarithms(norm), window, warm_up, GRADIENT_FLOOR, GRADIENT_GROWTH)
    twice, level = _last(z)
    rate = logarithms(part["learning_rate"])
    before = logarithms(np.append(math.nan, held(part["learning_rate"]))[:-1])
    log_size = logarithms(size)
    with np.errstate(invalid="ignore"):  # infinity less itself
        jump = windows.update(log_size, rate - before, window, warm_up)
        held_z = windows.reference(log_size - before, window, warm_up, UPDATE_FLOOR, CLIP)
        nats, norms = loss_excess, excess - EXPLAINED_PER_NAT * loss_excess
    known = np.isfinite(loss_excess) & np.isfinite(excess)
    return (
        np.where(broken > 0.0, math.inf, broken),
        np.where(_zeros(norm, warm_up), math.inf, twice),
        level,
        np.where(known, np.where(norms < nats, norms, nats), math.nan),
        np.where(_zeros(size, warm_up), math.inf, jump),
        _lowest(held_z),
    )


def _lowest(z: Column) -> Column:
    """Smallest of the last eight deviations (:class:`~rmetric.robust.gradients.HeldUpdate`)."""
    result = np.full(len(z), math.nan)
    known = np.flatnonzero(~np.isnan(z))
    if len(known) >= LEVEL_RECORDS:
        windows_of = np.lib.stride_tricks.sliding_window_view(z[known], LEVEL_RECORDS)
        result[known[LEVEL_RECORDS - 1 :]] = windows_of.min(axis=1)
    return result


def _last(z: Column) -> tuple[Column, Column]:
    """Smaller of the last two deviations, mean of the last eight (:class:`~rmetric.robust.reference.LastRecords`)."""
    twice, level = np.full(len(z), math.nan), np.full(len(z), math.nan)
    known = np.flatnonzero(~np.isnan(z))
    found = z[known]
    twice[known[1:]] = np.minimum(found[1:], found[:-1])
    if len(known) >= LEVEL_RECORDS:
        capped = np.clip(found, -LEVEL_CAP, LEVEL_CAP)
        count = len(known) - LEVEL_RECORDS + 1
        sums = reduce(add, (capped[first : first + count] for first in range(LEVEL_RECORDS)))  # in the order of records
        level[known[LEVEL_RECORDS - 1 :]] = sums / LEVEL_RECORDS
    return twice, level


def _zeros(sizes: Column, warm_up: int) -> NDArray[np.bool_]:
    if not (sizes == 0.0).any():
        return np.zeros(len(sizes), dtype=bool)
    zeros = Zeros(warm_up)
    return np.array([zeros.update(size) for size in sizes.tolist()], dtype=bool)


def _uniform(gaps: Column) -> Column:
    answers = np.abs(gaps) <= UNIFORM_NATS
    if answers.any():
        uniform = UniformAnswer()
        answers = np.array([uniform.update(gap) for gap in gaps.tolist()], dtype=bool)
    return np.where(answers | np.isinf(gaps), math.inf, np.where(np.isnan(gaps), math.nan, 0.0))
