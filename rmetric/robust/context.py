"""Context of a record that all components share: schedule and learning curve of the run so far."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from rmetric.measurements import Observation
from rmetric.robust.reference import CLIP, RobustReference, SortedWindow

RAISED = 1.1
"""Factor over the usual learning rate from which one is raised."""
LARGEST_NATS = 1e6
"""Beyond any loss; keeps differences finite."""
LOSS_FLOOR_NATS = 0.005
"""Smallest scale of a training loss that matters."""
FIRST_LINE = 32
"""Losses before the first line is drawn."""
RANGE = math.log(4.0)
"""Range of log(step) in one line: with the steep beginning in it, healthy drifts were three times as high."""


class Schedule:
    """The learning-rate schedule of a run so far.

    A restart of the schedule makes loss and gradients leave their course for a while, and is meant to. How far it goes
    is judged by the size of the updates; how long it goes on is not summed up while the rate is above the median of the
    last ``window`` records: a rate that stays high is the usual one after half a window.

    >>> schedule = Schedule(window=4)
    >>> [schedule.raised(rate) for rate in (0.1, 0.2, 0.2, 0.2, 0.6, 0.6, 0.6, 0.6, 0.3)]
    [False, True, True, False, True, True, True, False, False]
    """

    def __init__(self, window: int) -> None:
        self._rates = SortedWindow(window)

    def raised(self, rate: float) -> bool:
        """Whether the next record's learning rate is above the usual one; not where it is not known."""
        if not math.isfinite(rate):
            return False
        above = len(self._rates) > 0 and rate > RAISED * self._rates.middle
        self._rates.add(rate)
        return above


def bounded(loss: float) -> float:
    """A finite loss within ± :data:`LARGEST_NATS`; others as they are."""
    return min(max(loss, -LARGEST_NATS), LARGEST_NATS) if math.isfinite(loss) else loss


class LearningCurve:
    r"""A line in log(step) through the last losses, and how far above it the next one lies.

    .. math:: \hat{x}_t = \bar{x} + \min(0, b) (\ln t - \overline{\ln t}), \qquad
        z_t = (e_t - \max(0, \tilde{e})) / \max(1.4826 \, MAD(e), floor), \qquad e = x - \hat{x}

    with the least-squares slope b of the last losses. A line that rises is not drawn on: a loss that rises is what is
    looked for. A curve that bends more than a line in log(step) lies above it for long: the median error ẽ of a window
    is taken out, where it is positive.

    Against a median (:class:`~rmetric.robust.reference.RobustTrend`) a loss that stops falling looks healthy until half
    a window has gone by; a line says where the model should have come by then.

    Parameters
    ----------
    window, warm_up
        Errors that make the scale, and losses that must be there before the first score, more than :data:`FIRST_LINE`.
        The line goes through ``window`` to twice as many losses, and begins at a quarter of the present step if it can:
        only over a while is the curve a line in log(step).
    floor
        Smallest scale.
    clip
        A loss enters at most this many scales away from the line, so that an outlier never raises its own bar.

    **Source:** power laws of training: Hestness et al., arXiv 1712.00409; Kaplan et al., arXiv 2001.08361.

    >>> curve = LearningCurve(window=32, warm_up=40, floor=0.01, clip=5.0)
    >>> scores = [curve.update(t, 5.0 - 0.5 * math.log(t) + 0.02 * (-1) ** t) for t in range(1, 100)]
    >>> [round(score, 1) for score in scores[38:42]], round(curve.update(100, 2.9), 1)
    ([nan, nan, -0.7, 2.2], 6.6)
    """

    def __init__(self, *, window: int, warm_up: int, floor: float, clip: float) -> None:
        self.excess = math.nan
        """The last z in units of the loss: how far it lay above its expectation."""
        self._window, self._clip = window, clip
        self._points: deque[tuple[float, float]] = deque()
        self._sums = _Sums(0.0)
        self._until_renewed = window
        self._errors = RobustReference(window=window, warm_up=max(1, warm_up - FIRST_LINE), floor=floor, clip=clip)

    def update(self, step: int, value: float) -> float:
        """z of the next loss; NaN for one that was not measured and during the warm-up, infinity for infinity."""
        self.excess = value if not math.isfinite(value) else math.nan
        if not math.isfinite(value):
            return value
        place = math.log(max(step, 1))
        if len(self._points) < FIRST_LINE:
            self._add(place, value)
            return math.nan
        expected = self._sums.line(place)
        error = value - expected
        z = self._errors.update(error)
        if not math.isnan(z):
            scale = self._errors.scale
            value = expected + min(max(error, -self._clip * scale), self._clip * scale)
            self.excess = error - max(0.0, self._errors.middle)
            z = self.excess / scale
        self._add(place, value)
        return z

    def _add(self, place: float, value: float) -> None:
        """Remember a point. The sums are made anew once a window, or rounding errors would add up in a long run."""
        self._points.append((place, value))
        self._sums.add(place, value, 1)
        while len(self._points) > 2 * self._window or (
            len(self._points) > self._window and self._points[0][0] < place - RANGE
        ):
            self._sums.add(*self._points.popleft(), -1)
        self._until_renewed -= 1
        if self._until_renewed == 0:
            self._until_renewed = self._window
            self._sums = _Sums(place)
            for point in self._points:
                self._sums.add(*point, 1)


class _Sums:
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

    def line(self, place: float) -> float:
        """The line at a place; level if it rises."""
        x, y = self.x / self.count, self.y / self.count
        variance = self.xx / self.count - x * x
        slope = (self.xy / self.count - x * y) / variance if variance > 0.0 else 0.0
        return y + min(0.0, slope) * (place - self.origin - x)


class RecordContext(NamedTuple):
    """Context of one record; NaN where the loss cannot be judged."""

    planned: bool
    """Whether the learning rate has just been raised, so that loss and gradients are meant to move."""
    loss_z: float
    """Robust z of the training loss against its own course."""
    loss_excess_nats: float
    """Excess over that course."""


class RunContext:
    """Contexts of the records of a run, one after the other."""

    def __init__(self, window: int, warm_up: int) -> None:
        self._schedule = Schedule(window)
        self._curve = LearningCurve(window=window, warm_up=warm_up, floor=LOSS_FLOOR_NATS, clip=CLIP)

    def update(self, observation: Observation) -> RecordContext:
        """The context of the next record."""
        planned = self._schedule.raised(observation["learning_rate"])
        z = self._curve.update(observation.step, bounded(observation["training_loss"]))
        return RecordContext(planned, z, self._curve.excess)
