"""ΔL of the robust R-Metric: the training loss above its own course."""

from __future__ import annotations

import math

from rmetric.measurements import Observation
from rmetric.robust.context import LOSS_FLOOR_SHARE, bounded
from rmetric.robust.reference import Level, SortedWindow

LEARNED_NATS, UNIFORM_NATS = 0.1, 2e-5
"""A model that has come 0.1 nats below ln(vocabulary) does not return to it by itself; 2e-5 is the rounding of a mean
of logarithms in single precision."""
START_RECORDS, STAND_RECORDS, NOISE_RECORDS = 3, 25, 50
"""Losses whose median is where a run began, and where it stands; changes, and medians, that are remembered."""
FIRST_STAND = 10
"""Losses before the first median is taken."""
LEARNED_SCALES = 5.0
"""Noises that a run must have come down before it has something to lose."""
LOST_SCALES, LOST_SHARE = 6.0, 0.1
"""What counts as lost: six noises and a tenth of what was learned."""
CHANGES_80 = 3.6248
"""Width of the middle 80 % of the changes of independent normal noise, in its standard deviations."""


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


class Lost:
    r"""What two losses in a row have lost of what a run has learned; 1: six noises and a tenth of it.

    .. math:: (\min(x_t, x_{t-1}) - l) / (0.1 \, (x_0 - l) + 6 \, \sigma)

    with x₀ the median of the first losses, l the lowest of the last 50 running medians, and σ the noise of the last
    changes from record to record. A deviation from the course forgets where the run has been, and a climb becomes its
    course; this one remembers. It needs no course, so that it judges from the eleventh loss on, where a run has come
    down far more than its noise.

    >>> lost = Lost()
    >>> found = [lost.update(loss) for loss in (*(4.0 - 0.1 * step for step in range(30)), 2.0, 3.0, 3.0)]
    >>> [round(value, 2) for value in found[-3:]]
    [-6.4, -1.02, 4.07]
    """

    def __init__(self) -> None:
        self._losses, self._stands = SortedWindow(STAND_RECORDS), SortedWindow(NOISE_RECORDS)
        self._changes = SortedWindow(NOISE_RECORDS)
        self._start = self._before = math.nan

    def update(self, loss: float) -> float:
        """The value of the next loss; NaN for one that was not measured, and while little has been learned."""
        if not math.isfinite(loss):
            return math.nan
        before, self._before = self._before, loss
        lost = self._lost(min(loss, before)) if len(self._stands) else math.nan
        self._losses.add(loss)
        if before == before:
            self._changes.add(loss - before)
        if len(self._losses) == START_RECORDS:
            self._start = self._losses.middle
        if len(self._losses) >= FIRST_STAND:
            self._stands.add(self._losses.middle)
        return lost

    def _lost(self, loss: float) -> float:
        lowest = self._stands.quantile(0.0)
        spread = self._changes.quantile(0.9) - self._changes.quantile(0.1)
        noise = max(spread / CHANGES_80, LOSS_FLOOR_SHARE * abs(lowest))
        learned = self._start - lowest
        if learned <= LEARNED_SCALES * noise:
            return math.nan
        return (loss - lowest) / (LOST_SHARE * learned + LOST_SCALES * noise)


class LossEvidence:
    """Statistics of ΔL: the loss above its course for eight records; what two have lost; exactly ln(vocabulary).

    One high loss is no evidence: a bad batch raises the loss as far as a broken model does, for one step.

    A model that answers every token alike has a loss of ln(vocabulary) to the last digit, and will not recover:
    ``uniform_gap`` is infinite then.
    """

    statistics = ("training_loss.level", "training_loss.lost", "uniform_gap.jump")
    reads = ("training_loss", "uniform_gap")

    def __init__(self) -> None:
        self._level = Level()
        self._lost = Lost()
        self._uniform = UniformAnswer()

    def update(self, observation: Observation, loss_z: float) -> tuple[float, ...]:
        """The statistics of the next record, whose loss lies so many scales above its course."""
        level = self._level.update(loss_z)
        gap = observation["uniform_gap"]
        uniform = self._uniform.update(gap) or math.isinf(gap)
        lost = self._lost.update(bounded(observation["training_loss"]))
        return level, lost, math.inf if uniform else 0.0 if gap == gap else math.nan
