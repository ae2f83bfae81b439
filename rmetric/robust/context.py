"""What the components of a record share: where the loss should be by now, whether records are others, and rewards."""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray

from rmetric.measurements import LARGEST, Observation, reader
from rmetric.records import Observations
from rmetric.robust.reference import CLIP, LEVEL_RECORDS, WINDOW, SortedWindow, UpperReference, doubt, middle_of

LOSS_FLOOR_SHARE = 0.002
"""Smallest scale of a training loss that matters, as a share of the loss: losses have no common unit."""
START_FLOOR_SHARE = 1e-3
"""The same as a share of the largest level that a run's loss has had: near 0 a share of the loss is nothing."""
LEAST_SCALE = 1e-12
"""Smallest scale of all."""
FIRST_LINE = 16
"""Losses before the first line is drawn."""
RANGE = math.log(2.0)
"""Range of log(step) in one line: its second half. With three quarters of the way in it, a steep beginning put what
followed above the line: four times as many false alarms on strangers' runs. A shorter range changes little."""
FIRST_CADENCE, LEARNED_RECORDS = 4, 40
"""Intervals between records that must be there to tell the usual ones, and records that a change leaves to learn what
is usual: where intervals are irregular, records would be others again and again, and none be judged."""
CADENCE_FACTOR = 3.0
"""Change of the interval by which records become others: of 1 step first, of 100 later."""
RATE_FACTOR, SAME_RATE = 3.0, 1.02
"""Growth of the learning rate at once that is none of a schedule's steps, and that within which two rates are alike."""
RATES_BETWEEN = 96
"""Learning rates that must have been without such a leap before one is of a schedule: two optimizers that are logged in
turn begin nothing anew."""
ANNOUNCED, APART = 4, 18
"""Announced changes in a row, each less than so many records after the one before: what is lost, of all the first to be
judged, is judged in the 18th record."""

TRAINED = ("training_loss", "grad_norm", "update_rms", "step_time_s")
"""What a record of the training holds at least one of: others tell of evaluations, between which they come."""
_of_training = reader(TRAINED)


def training_rows(observations: Observations) -> NDArray[np.intp]:
    """Places of the records of the training."""
    return np.flatnonzero(np.logical_or.reduce([~np.isnan(observations[name]) for name in TRAINED]))


LATEST_REWARDS, FIRST_REWARDS = 8, 16
"""Rewards whose median is compared with those before, and that must have been before to tell."""
REWARD_GAPS = 3
"""Rewards are known for as many times the longest time between two: episodes end seldom where they are long."""
LOW_SHARE = 0.25
"""Quantile of the rewards before, below which the latest ones have fallen."""


class Rewards:
    """Whether an agent does as well as before, by the rewards that its run reports, if it does.

    The loss of a policy gradient measures no success, and what pulls it back to a reference begins at 0 and rises. Its
    gradients come and go with the success of single batches, and agree while it learns fast.

    >>> rewards = Rewards()
    >>> [rewards.hold(reward) for reward in (math.nan, 0.5, math.nan)]
    [False, True, True]
    >>> [rewards.hold(reward) for reward in (*[0.5, 0.6] * 12, *[0.1] * 8)][-6:]
    [True, False, False, False, False, False]
    """

    _longest = 0
    """Records between two rewards, at most; those before the first count too. An older state lacks it."""

    def __init__(self) -> None:
        self._before = SortedWindow(WINDOW)
        self._latest: deque[float] = deque(maxlen=LATEST_REWARDS)
        self._hold, self._since = False, 0

    @property
    def told(self) -> bool:
        """Whether any was reported."""
        return len(self._latest) > 0

    def hold(self, reward: float) -> bool:
        """Whether rewards are known by the next record, and the latest have not fallen below those before.

        They are known for a window of records, or for :data:`REWARD_GAPS` times the longest gap between two.
        """
        self._since += 1
        if math.isfinite(reward):
            self._longest, self._since = max(self._longest, self._since), 0
            if len(self._latest) == LATEST_REWARDS:
                self._before.add(self._latest[0])
            self._latest.append(reward)
            are_few = len(self._before) < FIRST_REWARDS
            self._hold = are_few or median(self._latest) >= self._before.quantile(LOW_SHARE)
        return self._hold and self._since < max(WINDOW, REWARD_GAPS * self._longest)


class NewLows:
    """Whether a model learns more than it ever did: the median of its last eight losses is below all that were before.

    Large gradients, gradients that agree and larger updates are progress then, as where a plateau is left.

    >>> lows = NewLows()
    >>> [step for step, loss in enumerate([2.0] * 9 + [1.9] * 8) if lows.update(loss)]
    [12, 13, 14, 15, 16]
    """

    def __init__(self) -> None:
        self.recent: deque[float] = deque(maxlen=LEVEL_RECORDS)
        """The last eight losses."""
        self.lowest = math.inf
        """Lowest of those before the next eight."""

    def update(self, loss: float) -> bool:
        """Whether it does with the next loss; one that is not finite is left out, and tells nothing."""
        if not math.isfinite(loss):
            return False
        self.recent.append(loss)
        if len(self.recent) < LEVEL_RECORDS:
            return False
        before, self.lowest = self.lowest, min(self.lowest, self.recent[0])
        return middle_of(sorted(self.recent)) < before < math.inf


class Cadence:
    """The usual numbers of steps between records, and whether they have just changed.

    A record of 100 steps and one of a single step are draws of different noise, and a gap in a log hides a part of the
    curve: what was learned from the records before is no reference for those after.

    >>> cadence = Cadence()
    >>> [step for step in (1, 2, 3, 4, 5, 6, 106, 206, 306) if cadence.changes(step)]
    [106]
    """

    def __init__(self) -> None:
        self._step: int | None = None
        self._intervals: deque[int] = deque(maxlen=WINDOW)
        self._since = LEARNED_RECORDS
        """Records since the last change."""

    def extend(self, observations: Observations) -> list[int]:
        """Places of the next records of the training that come after an unusual interval."""
        rows = training_rows(observations)
        steps = observations.step[rows].tolist()
        return [row for row, step in zip(rows.tolist(), steps, strict=True) if self.changes(step)]

    def changes(self, step: int) -> bool:
        """Whether the record of this step comes after an unusual interval, which is then the first of a new kind."""
        if self._step is None:
            self._step = step
            return False
        interval, known = step - self._step, self._intervals
        changed = (
            self._since >= LEARNED_RECORDS
            and len(known) >= FIRST_CADENCE
            and interval != known[-1]  # as nearly always: the range need not be looked for
            and (interval > CADENCE_FACTOR * max(known) or CADENCE_FACTOR * interval < min(known))
        )
        if changed:
            known.clear()
            self._since = 0
        self._step = step
        self._since += 1
        known.append(interval)
        return changed


class Trained:
    """How many parameters are trained, and whether these have just become more.

    Where layers are unfrozen, gradients and updates are those of a larger model from then on.

    >>> trained = Trained()
    >>> [trained.changes(parameters) for parameters in (math.nan, 4.0, math.nan, 6.0, 6.0)]
    [False, False, False, True, False]
    """

    def __init__(self) -> None:
        self._parameters = math.nan

    def changes(self, parameters: float) -> bool:
        """Whether a record is the first with more; NaN: as many as before."""
        before = self._parameters
        if parameters == parameters:
            self._parameters = parameters
        return parameters > before


class Restarts:
    """Whether a schedule of the learning rate begins again: the rate leaps up to what it has been before.

    A warm restart is meant, and so is the rise of the loss that follows it; the learning rate announces both. A leap
    above all that the run has had is none.

    >>> restarts = Restarts()
    >>> rates = [*(1.0 - place / 100 for place in range(100)), 1.0, 0.3, 1.0, *[0.01] * 99, 2.0]
    >>> [place for place, rate in enumerate(rates) if restarts.changes(rate)]
    [100]
    """

    def __init__(self) -> None:
        self.rate = math.nan
        """The latest, NaN before any."""
        self._largest, self._since = 0.0, 0

    def pass_by(self, rates: int, latest: float, largest: float) -> None:
        """Take in so many rates, positive and finite, none of which leaps."""
        self._since += rates
        self._remember(latest, largest)

    def changes(self, rate: float) -> bool:
        """Whether a record is the first after a restart; a rate that is no positive number says nothing."""
        if not 0.0 < rate < math.inf:
            return False
        leaps = rate >= RATE_FACTOR * self.rate
        restarts = leaps and self._since >= RATES_BETWEEN and rate <= SAME_RATE * self._largest
        self._since = 0 if leaps else self._since + 1
        self._remember(rate, rate)
        return restarts

    def _remember(self, latest: float, largest: float) -> None:
        self.rate, self._largest = latest, max(self._largest, largest)


class Context:
    """What records stand for, and whether that has just changed: what was before is then no reference for what follows.

    It has where they come at another interval, where more parameters are trained, where the schedule of the learning
    rate begins again, and where a change was announced (``planned_changes``).

    >>> context = Context()
    >>> [context.changes(Observation(step, planned_changes=planned)) for step, planned in enumerate((None, 1.0, None))]
    [False, True, False]
    """

    def __init__(self) -> None:
        self.cadence, self.trained, self.restarts = Cadence(), Trained(), Restarts()

    def changes(self, observation: Observation) -> bool:
        """Whether the next record is the first that stands for something else than those before."""
        loss, norm, size, time_s = _of_training(observation)
        trains = loss == loss or norm == norm or size == size or time_s == time_s
        others = trains and self.cadence.changes(observation.step)
        more = self.trained.changes(observation["trained_parameters"])
        again = self.restarts.changes(observation["learning_rate"])
        return others or more or again or observation.announced


class Announcements:
    """Whether changes are announced so often that nothing is judged in between.

    >>> announcements = Announcements()
    >>> [announcements.update(announced=True) for _ in range(5)]
    [False, False, False, True, False]
    """

    def __init__(self) -> None:
        self._records, self._told = 0, False
        self._announced: deque[int] = deque(maxlen=ANNOUNCED)

    def update(self, *, announced: bool) -> bool:
        """Whether, for the first time, changes come too often with the next record, if one is announced there."""
        self._records += 1
        news = announced and self._too_often(self._records) and not self._told
        self._told |= news
        return news

    def extend(self, announced: NDArray[np.bool_]) -> bool:
        """Whether changes come too often in any of the next records, shape (n,), for the first time or not."""
        found = [self._too_often(self._records + 1 + row) for row in np.flatnonzero(announced).tolist()]
        self._records += len(announced)
        return any(found)

    def _too_often(self, record: int) -> bool:
        self._announced.append(record)
        apart = [later - before for before, later in pairwise(self._announced)]
        return len(apart) == ANNOUNCED - 1 and max(apart) < APART


def bounded(loss: float) -> float:
    """A finite loss within ± :data:`~rmetric.measurements.LARGEST`; others as they are."""
    return min(max(loss, -LARGEST), LARGEST) if math.isfinite(loss) else loss


def loss_floor(level: float, largest: float) -> float:
    """Smallest scale of a loss whose course is at ``level``, in a run that has had ``largest``; nats."""
    return max(LOSS_FLOOR_SHARE * level, START_FLOOR_SHARE * largest, LEAST_SCALE)


def line_at(place: float, origin: float, count: float, x: float, y: float, xx: float, xy: float) -> float:
    """The least-squares line of these sums at a place; level if it rises."""
    x, y = x / count, y / count
    variance = xx / count - x * x
    slope = (xy / count - x * y) / variance if variance > 0.0 else 0.0
    return y + min(0.0, slope) * (place - origin - x)


class LearningCurve:
    r"""A line in log(step) through the last losses, and how far above it the next one lies.

    .. math:: \hat{x}_t = \bar{x} + \min(0, b) (\ln t - \overline{\ln t}), \qquad
        z_t = \frac{e_t - \max(0, \tilde{e})}{scale \sqrt{1 + 32 / n}}, \qquad e = x - \hat{x}

    with the least-squares slope b of the last n losses. A line that rises is not drawn on: a loss that rises is what is
    looked for. A curve that bends more than a line in log(step) lies above it for long: the median error ẽ of a window
    is taken out, where it is positive. The scale is that of :class:`~rmetric.robust.reference.UpperReference`, so that
    a loss with two levels (mixed and unmixed batches) knows both, and at least a share of the loss itself.

    Against a median (:class:`~rmetric.robust.reference.RobustTrend`) a loss that stops falling looks healthy until half
    a window has gone by; a line says where the model should have come by then.

    **Source:** power laws of training: Hestness et al., arXiv 1712.00409; Kaplan et al., arXiv 2001.08361.

    Parameters
    ----------
    window, warm_up
        Errors that make the scale, and losses that must be there before the first score, more than :data:`FIRST_LINE`.
        The line goes through at most ``2 window`` losses, and begins at half of the present step if it can: only over a
        while is the curve a line in log(step).

    Examples
    --------
    >>> curve = LearningCurve(window=32, warm_up=40)
    >>> scores = [curve.update(t, 5.0 - 0.5 * math.log(t) + 0.02 * (-1) ** t) for t in range(1, 100)]
    >>> [math.isnan(score) for score in scores[38:42]], curve.update(100, 2.9) > 3.0 > max(scores[80:])
    ([True, True, False, False], True)
    """

    def __init__(self, *, window: int, warm_up: int) -> None:
        self.excess = math.nan
        """The last z in units of the loss: how far it lay above its expectation."""
        self._window = window
        self.points: deque[tuple[float, float]] = deque()
        """ln(step) and loss, clipped, of each of the losses that make the line."""
        self.sums = LineSums(0.0)
        """Of these points."""
        self.until_renewed = window
        """Losses after which the sums are made anew."""
        self.largest = 0.0
        """Largest level, in magnitude, that the run's losses have had; nats."""
        self.errors = UpperReference(window=window, warm_up=max(1, warm_up - FIRST_LINE), floor=0.0, clip=CLIP)
        """How far losses lay above the line, in nats."""

    def update(self, step: int, value: float) -> float:
        """z of the next loss; NaN for one that was not measured and during the warm-up, infinity for infinity."""
        self.excess = value if not math.isfinite(value) else math.nan
        if not math.isfinite(value):
            return value
        place = math.log(max(step, 1))
        if len(self.points) < FIRST_LINE:
            self._add(place, value)
            return math.nan
        expected = self.sums.line(place)
        error = value - expected
        level = abs(self.sums.mean)
        self.largest = max(self.largest, level)
        self.errors.floor = loss_floor(level, self.largest)
        z = self.errors.update(error)
        if not math.isnan(z):
            reach = CLIP * self.errors.scale
            value = min(max(value, expected - reach), expected + reach)
            self.excess = error - max(0.0, self.errors.middle)
            z = self.excess / (self.errors.scale * doubt(self.sums.count))
        self._add(place, value)
        return z

    def _add(self, place: float, value: float) -> None:
        """Remember a point. The sums are made anew once a window, or rounding errors would add up in a long run."""
        self.points.append((place, value))
        self.sums.add(place, value, 1)
        while len(self.points) > 2 * self._window or (
            len(self.points) > FIRST_LINE and self.points[0][0] < place - RANGE
        ):
            self.sums.add(*self.points.popleft(), -1)
        self.until_renewed -= 1
        if self.until_renewed == 0:
            self.until_renewed = self._window
            self.sums = LineSums(place)
            for point in self.points:
                self.sums.add(*point, 1)


class LineSums:
    """Sums of a least-squares line, with places counted from an origin near them: their squares stay exact."""

    def __init__(self, origin: float) -> None:
        self.origin = origin
        self.count = 0
        self.x = self.y = self.xx = self.xy = 0.0

    def add(self, place: float, value: float, times: int) -> None:
        """A point, once more (1) or once less (-1)."""
        x = place - self.origin
        self.count += times
        self.x += times * x
        self.y += times * value
        self.xx += times * x * x
        self.xy += times * x * value

    @property
    def mean(self) -> float:
        """Mean value."""
        return self.y / self.count

    def line(self, place: float) -> float:
        """The line at a place; level if it rises."""
        return line_at(place, self.origin, self.count, self.x, self.y, self.xx, self.xy)
