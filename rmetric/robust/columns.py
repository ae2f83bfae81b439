"""The robust R-Metric by columns: the bits of :class:`~rmetric.robust.metric.Statistics`, and its state afterwards.

References are compiled (:mod:`rmetric.robust.windows`); what is cheap is left to the very classes that stream.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric.measurements import LARGEST
from rmetric.records import Observations, held
from rmetric.robust import windows
from rmetric.robust.context import RATE_FACTOR, Context, LearningCurve, NewLows, Restarts
from rmetric.robust.gradients import (
    EXPLAINED_NATS,
    EXPLAINED_PER_NAT,
    Fading,
    GradientEvidence,
)
from rmetric.robust.hardware import JITTER_S, HardwareEvidence, Incidents
from rmetric.robust.loss import Diverged, LossEvidence, UniformAnswer
from rmetric.robust.reference import LEVEL_CAP, LEVEL_RECORDS, Held, Level
from rmetric.robust.surprise import OwnBar, Tail

Column = NDArray[np.float64]


def evidence(tails: Sequence[Tail], bar: OwnBar, statistics: NDArray[np.float64]) -> Column:
    """Evidence of a component in each of the next records, from its statistics, shape (n, statistics)."""
    found = np.max([windows.surprises(*pair) for pair in zip(tails, statistics.T, strict=True)], axis=0)
    return windows.evidence(bar, found)


def alike(context: Context, observations: Observations) -> Iterator[tuple[Observations, bool]]:
    """Parts whose records stand for the same; and whether that is another than before."""
    parameters = observations["trained_parameters"]
    told = np.flatnonzero(~np.isnan(parameters)).tolist()
    changes = [
        *context.cadence.extend(observations),
        *(row for row in told if context.trained.changes(float(parameters[row]))),
        *_restarts(context.restarts, observations["learning_rate"]),
        *np.flatnonzero(observations.announced).tolist(),
    ]
    for begin, end in pairwise(sorted({0, *changes, len(observations)})):
        yield observations.rows(slice(begin, end)), begin in changes


def _restarts(of: Restarts, rates: Column) -> list[int]:
    """Places of the records with which a schedule of the learning rate begins again."""
    places = np.flatnonzero((rates > 0.0) & (rates < math.inf))
    known = rates[places]
    with np.errstate(over="ignore"):  # nothing is three times the largest double
        leaps = known >= RATE_FACTOR * np.append(of.rate, known)[:-1]
    if leaps.any():
        return [place for place, rate in zip(places.tolist(), known.tolist(), strict=True) if of.changes(rate)]
    if len(known):  # as in most runs
        of.pass_by(len(known), float(known[-1]), float(known.max()))
    return []


def incidents(of: Incidents, observations: Observations) -> Column:
    """Sums of the next records' hardware events; while there are none, as in most runs, nothing has to be added up."""
    sums, happens = np.empty(len(observations)), _events_in(of, observations)
    places = np.append(np.flatnonzero(happens), len(observations)).tolist()
    read = [observations[name] for name in Incidents.reads]
    begin = 0
    while begin < len(observations):
        if of.quiet and not happens[begin]:
            end = places[bisect_left(places, begin)]
            sums[begin:end] = _passed_by(of, observations.rows(slice(begin, end)))
            begin = end
        else:
            sums[begin] = of.update(int(observations.step[begin]), *(float(values[begin]) for values in read))
            begin += 1
    return sums


def _events_in(of: Incidents, observations: Observations) -> NDArray[np.bool_]:
    """Where the next records may tell of an event, or do not come in their order."""
    events, _, rates = (observations[name] for name in Incidents.reads)
    before = np.append(of.rate, held(rates, of.rate)[:-1])
    changes = (rates != before) & ~np.isnan(rates) & ~np.isnan(before)
    return (np.nan_to_num(events) != 0.0) | changes | (np.diff(observations.step, prepend=observations.step[:1]) < 0)


def _passed_by(of: Incidents, observations: Observations) -> Column:
    """Sums of records without an event, of which there is at least one, while nothing is left of those before."""
    events, _, rates = (observations[name] for name in Incidents.reads)
    measured = of.measured | np.logical_or.accumulate(~(np.isnan(events) & np.isnan(rates)))
    of.update(int(observations.step[0]), float(events[0]), math.nan, float(rates[0]))
    of.update(int(observations.step[-1]), 0.0 if (events == 0.0).any() else math.nan, math.nan, float(held(rates)[-1]))
    return np.where(measured, 0.0, math.nan)


def training(
    hardware: HardwareEvidence,
    curve: LearningCurve,
    lows: NewLows,
    gradients: GradientEvidence,
    loss: LossEvidence,
    part: Observations,
) -> tuple[Column, ...]:
    """Statistics of the next records' step times, gradients and losses, each of shape (n,)."""
    times = windows.logarithms(part["step_time_s"] + JITTER_S)
    losses = part["training_loss"]
    losses = np.where(np.isfinite(losses), np.clip(losses, -LARGEST, LARGEST), losses)
    loss_z, loss_excess = windows.curve(curve, windows.logarithms(np.maximum(part.step, 1.0)), losses)
    slowdown = windows.slowdown(hardware.slowdown, times)
    of_gradients = _gradients(gradients, part, loss_excess, _new_lows(lows, losses))
    return slowdown, *of_gradients, *_loss(loss, part, losses, loss_z)


def level_of(of: Level, z: Column) -> Column:
    """Mean of the last eight deviations, or the smallest of them, at each of the next ones, shape (n,)."""
    capped = np.clip(z, -LEVEL_CAP, LEVEL_CAP)
    mean = _over_last(of.capped, capped, lambda last: reduce(add, last) / LEVEL_RECORDS)  # in the order of records
    shared = _held(of.held, z)
    return np.where(mean < LEVEL_CAP, mean, shared)  # not the larger one: rounded, the mean of eight alike may be less


def _new_lows(of: NewLows, losses: Column) -> NDArray[np.bool_]:
    def told(last: list[Column]) -> NDArray[np.bool_]:
        lowest = np.minimum.accumulate(np.append(of.lowest, last[0]))
        before, of.lowest = lowest[:-1], float(lowest[-1])
        return (np.median(last, axis=0) < before) & (before < math.inf)

    return _over_last(of.recent, np.where(np.isfinite(losses), losses, math.nan), told) == 1.0


def _loss(of: LossEvidence, part: Observations, losses: Column, loss_z: Column) -> tuple[Column, ...]:
    lost, stood = windows.lost(of.lost, losses)
    level = level_of(of.level, np.where((loss_z > 0.0) & (losses <= stood), 0.0, loss_z))
    return level, lost, _diverged(of.diverged, losses), _uniform(of.uniform, part["uniform_gap"])


def _diverged(of: Diverged, losses: Column) -> Column:
    found = np.full(len(losses), math.nan)
    for index, loss in enumerate(losses.tolist()):
        if of.over:
            break
        found[index] = of.update(loss)
    return found


def _gradients(
    of: GradientEvidence, part: Observations, loss_excess: Column, lows: NDArray[np.bool_]
) -> tuple[Column, ...]:
    counts = part["non_finite_count"], np.where(part.announced, math.nan, part["settings_changed"])
    norm, size = part["grad_norm"], part["update_rms"]
    z, excess = windows.trend(of.norm, part.step - of.after, windows.logarithms(norm))
    rates = held(part["learning_rate"], of.rate)
    log_rates = windows.logarithms(rates)
    before = np.append(of.log_rate, log_rates[:-1])
    of.rate, of.log_rate = float(rates[-1]), float(log_rates[-1])
    log_size = windows.logarithms(size)
    with np.errstate(invalid="ignore", over="ignore"):  # infinity less itself; a multiple of a rate that is all but it
        jump = windows.update(of.sizes, log_size, windows.logarithms(part["learning_rate"]) - before)
        ratio = log_size - before
        held_up = _held(of.larger, windows.reference(of.ratio, ratio))
        nats, norms = loss_excess, excess - EXPLAINED_PER_NAT * np.minimum(loss_excess, EXPLAINED_NATS)
    agreement = part["grad_agreement"]
    agrees = windows.reference(of.agreement, agreement)
    agreeing = _held(of.agreeing, np.where(agreement <= 0.0, np.minimum(agrees, 0.0), agrees))
    smaller = _fading(of.fading, ratio) | _fading(of.slowing, log_rates)
    held_up, agreeing = _without_rise(smaller, held_up, agreeing)
    known = np.isfinite(loss_excess) & np.isfinite(excess)
    all_learned = part["training_loss"] == 0.0
    solved = (size == 0.0) & (all_learned | np.append(of.all_learned, all_learned[:-1]))
    of.all_learned = bool(all_learned[-1])
    zero_norms, zero_updates = (
        zeros.extend(np.where(passed_by, math.nan, sizes))
        for zeros, sizes, passed_by in ((of.zero_norms, norm, all_learned), (of.zero_updates, size, solved))
    )
    level, agreeing, held_up = _without_rise(lows, level_of(of.level, z), agreeing, held_up)
    return (
        *(np.where(count > 0.0, math.inf, count) for count in counts),
        np.where(zero_norms, math.inf, level),
        np.where(known, np.where(norms < nats, norms, nats), math.nan),
        agreeing,
        np.where(zero_updates, math.inf, jump),
        held_up,
    )


def _without_rise(where: NDArray[np.bool_], *statistics: Column) -> tuple[Column, ...]:
    """The same, and 0 for each that is high at these places."""
    return tuple(np.where((z > 0.0) & where, 0.0, z) for z in statistics)


def _fading(of: Fading, values: Column) -> NDArray[np.bool_]:
    """Where the last values fade."""
    finite = np.where(np.isfinite(values), values, math.nan)
    return _over_last(of.recent, finite, lambda last: last[-1] <= last[0] - of.by) == 1.0


def _held(of: Held, z: Column) -> Column:
    """Smallest of the last deviations."""
    return _over_last(of.recent, z, lambda last: reduce(np.minimum, last))


def _over_last(recent: deque[float], values: Column, told: Callable[[list[Column]], Any]) -> Column:
    """What the last values tell at each of the next ones; NaN at NaN, and until there are as many as are remembered."""
    result, known = np.full(len(values), math.nan), np.flatnonzero(~np.isnan(values))
    records, remembered = recent.maxlen or 0, len(recent)
    found = np.append(recent, values[known])
    late = known[max(0, records - 1 - remembered) :]
    result[late] = told(_last(records, found, len(late)))
    recent.extend(found[remembered:][-records:].tolist())
    return result


def _last(records: int, values: Column, count: int) -> list[Column]:
    """The last values, so many, at each of the last ``count`` places, the earliest of them first."""
    begin = len(values) - records + 1 - count
    return [values[first : first + count] for first in range(begin, begin + records)]


def _uniform(of: UniformAnswer, gaps: Column) -> Column:
    answers = np.array([of.update(gap) for gap in gaps.tolist()], dtype=bool)
    return np.where(answers | np.isinf(gaps), math.inf, np.where(np.isnan(gaps), math.nan, 0.0))
