"""ΔL of the robust R-Metric: the training loss above its own course."""

from __future__ import annotations

import math

from rmetric.measurements import Observation, reader
from rmetric.robust.context import LOSS_FLOOR_SHARE, bounded
from rmetric.robust.reference import Level, SortedWindow, doubt

LEARNED_NATS, UNIFORM_NATS = 0.1, 2e-5
"""A model that has come 0.1 nats below ln(vocabulary) does not return to it by itself; 2e-5 is the rounding of a mean
of logarithms in single precision."""
START_RECORDS, STAND_RECORDS = 3, 25
"""Losses whose median is where a run began, and where it stands."""
FIRST_CHANGES = 16
"""Changes from loss to loss that must be known before anything is judged by their noise."""
LOST_RECORDS = 3
"""Losses in a row that must be high: two of them are one batch, or two."""
LOST_SCALES, LOST_SHARE = 6.0, 0.1
"""What counts as lost: six noises or a tenth of what was learned, whichever is more."""
LEAP_CHANGES, LEAP_SHARE = 25, 0.4
"""What is lost is lost in a leap: one of the last 25 changes makes two fifths of the rise. (A third, or half, gives
nearly the same.)"""
CHANGES_80 = 3.6248
"""Width of the middle 80 % of the changes of independent normal noise, in its standard deviations."""
EARLY_RECORDS = 64
"""Losses of a run that has just begun."""
EARLY_SHARE, EARLY_FACTOR = 2 / 3, 3.0
"""It diverges with three losses in a row that are three times as high as any of this share of them, the first ones."""
FIRST_FACTOR, FIRST_NATS = 10.0, 0.1
"""Or ten times as high as the very first, for it may break in the step after. First losses that are smaller than this
count as this: those of an agent, or of a penalty on what has not changed yet, have nowhere to go but up."""


class UniformAnswer:
    """Detects a model that answers every token alike, although it had learned more: a loss of exactly ln(vocabulary).

    >>> uniform = UniformAnswer()
    >>> [uniform.update(gap) for gap in (0.0, -1.0, math.nan, 1e-6)]
    [False, False, False, True]
    """

    def __init__(self, tolerance_nats: float = UNIFORM_NATS) -> None:
        self._tolerance_nats = tolerance_nats
        self._lowest_gap = math.inf

    def update(self, gap: float) -> bool:
        """Whether it does so in the next record, whose loss lies ``gap`` above ln(vocabulary)."""
        uniform = abs(gap) <= self._tolerance_nats and self._lowest_gap < -LEARNED_NATS
        if gap < self._lowest_gap:
            self._lowest_gap = gap
        return uniform


def lost_unit(start: float, lowest: float, spread: float) -> float:
    """What counts as lost, in nats: :data:`LOST_SCALES` noises, or :data:`LOST_SHARE` of what was learned if more."""
    noise = max(spread / CHANGES_80, LOSS_FLOOR_SHARE * abs(lowest))
    return max(LOST_SHARE * (start - lowest), LOST_SCALES * noise)


class Lost:
    r"""What three losses in a row have lost of what a run has learned; 1: six noises, or a tenth of it if that is more.

    .. math:: \frac{\min(x_t, x_{t-1}, x_{t-2}) - l}{\max(0.1 \, (x_0 - l), 6 \, \sigma) \sqrt{1 + 32 / n}}

    with x₀ the median of the first three losses, l the lowest running median of late, and σ the noise of the last n
    changes from record to record. A deviation from the course forgets where the run has been, and a climb becomes its
    course; this one remembers. It needs no course, so that it judges from the eighteenth loss on.

    What rises in small steps is not lost, and the value is 0: so climb, from the first record on, the losses of two
    networks that play against each other, of a student whose teacher moves on, or of an actor whose critic learns.

    >>> lost = Lost(window=96)
    >>> found = [lost.update(loss) for loss in (*(4.0 - 0.1 * step for step in range(30)), 2.0, 3.0, 3.0, 3.0)]
    >>> [round(value, 2) for value in found[-3:]]
    [-4.5, -0.83, 3.33]
    """

    def __init__(self, *, window: int) -> None:
        self.losses = SortedWindow(STAND_RECORDS)
        """The last losses."""
        self.stands = SortedWindow(window)
        """Their medians of late, from the third loss on."""
        self.changes = SortedWindow(window)
        """The last changes from loss to loss."""
        self.start = math.nan
        """Median of the first three losses; NaN before."""

    @property
    def stand(self) -> float:
        """Median of the last 25 losses; NaN before any."""
        return self.losses.middle if len(self.losses) else math.nan

    def update(self, loss: float) -> float:
        """The value of the next loss; NaN for one that was not measured, and while little is known of the noise."""
        if not math.isfinite(loss):
            return math.nan
        before = tuple(self.losses.latest(LOST_RECORDS - 1))
        change = loss - before[0] if before else math.nan
        lost = self._lost(min(loss, *before), change) if len(self.changes) >= FIRST_CHANGES else math.nan
        self.losses.add(loss)
        if change == change:
            self.changes.add(change)
        if len(self.losses) == START_RECORDS:
            self.start = self.losses.middle
        if len(self.losses) >= START_RECORDS:
            self.stands.add(self.losses.middle)
        return lost

    def _lost(self, loss: float, change: float) -> float:
        lowest = self.stands.quantile(0.0)
        spread = self.changes.quantile(0.9) - self.changes.quantile(0.1)
        unit = lost_unit(self.start, lowest, spread)
        if unit <= 0.0:
            return math.nan
        rise = loss - lowest
        if rise > 0.0 and max(change, *self.changes.latest(LEAP_CHANGES - 1)) < LEAP_SHARE * rise:
            return 0.0
        return rise / (unit * doubt(len(self.changes)))


class Diverged:
    """Detects a run that diverges as soon as it has begun: three losses in a row far above all of its first ones.

    Infinite then, and 0 where it has not. It needs neither a course nor the noise, and so judges from the seventh loss
    on, up to the 64th, when the others can. Losses that are not above 0 throughout have no such unit: NaN.

    >>> diverged = Diverged(EARLY_RECORDS)
    >>> [diverged.update(loss) for loss in (4.8, 4.7, 4.6, 4.7, 16.0, 60.0, 270.0)]
    [nan, nan, nan, nan, nan, nan, inf]
    """

    def __init__(self, records: int) -> None:
        self._records = records
        self._losses: list[float] = []

    @property
    def over(self) -> bool:
        """Whether the run is past its beginning, so that nothing more is judged."""
        return len(self._losses) == self._records

    def update(self, loss: float) -> float:
        """The value of the next loss."""
        if self.over or not math.isfinite(loss):
            return math.nan
        self._losses.append(loss)
        first, latest = self._losses[: int(EARLY_SHARE * len(self._losses))], self._losses[-LOST_RECORDS:]
        if len(first) + LOST_RECORDS > len(self._losses) or min(first) <= 0.0:
            return math.nan
        usual = min(EARLY_FACTOR * max(FIRST_NATS, *first), FIRST_FACTOR * max(first[0], FIRST_NATS))
        return math.inf if min(latest) > usual else 0.0


class LossEvidence:
    """Statistics of ΔL: the loss above its course for eight records; what three have lost; far above where the run
    began, soon after; exactly ln(vocabulary).

    One high loss is no evidence: a bad batch raises the loss as far as a broken model does, for one step. Nor is one
    that lies above its course but not above where the run stands, the median of its last 25 losses: it falls, though
    not as fast as before.

    A model that answers every token alike has a loss of ln(vocabulary) to the last digit, and will not recover:
    ``uniform_gap`` is infinite then.

    Parameters
    ----------
    window
        Records whose changes make a scale.
    after
        Step after which the reference begins, if that is not the run's first: it does not begin there.
    """

    statistics = ("training_loss.level", "training_loss.lost", "training_loss.diverged", "uniform_gap.jump")
    reads = ("training_loss", "uniform_gap")
    _read = staticmethod(reader(reads))

    def __init__(self, window: int, after: int = 0) -> None:
        self.level = Level()
        self.lost = Lost(window=window)
        self.diverged = Diverged(0 if after else EARLY_RECORDS)
        self.uniform = UniformAnswer()
        """What makes each of :attr:`statistics`."""

    def update(self, observation: Observation, loss_z: float) -> tuple[float, ...]:
        """The statistics of the next record, whose loss lies so many scales above its course."""
        loss, gap = self._read(observation)
        loss = bounded(loss)
        level = self.level.update(0.0 if loss_z > 0.0 and loss <= self.lost.stand else loss_z)
        uniform = self.uniform.update(gap) or math.isinf(gap)
        lost = self.lost.update(loss)
        diverged = self.diverged.update(loss)
        return level, lost, diverged, math.inf if uniform else 0.0 if gap == gap else math.nan
