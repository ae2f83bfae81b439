"""ΔL of the robust R-Metric: the training loss above its own course."""

from __future__ import annotations

import math

from rmetric.measurements import Observation
from rmetric.robust.reference import LastRecords

LEARNED_NATS, UNIFORM_NATS = 0.1, 2e-5
"""A model that has come 0.1 nats below ln(vocabulary) does not return to it by itself; 2e-5 is the rounding of a mean
of logarithms in single precision."""


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


class LossEvidence:
    """Statistics of ΔL: the training loss above its course for two or eight records; one of exactly ln(vocabulary).

    One high loss is no evidence: a bad batch raises the loss as far as a broken model does, for one step.

    A model that answers every token alike has a loss of ln(vocabulary) to the last digit, and will not recover:
    ``uniform_gap`` is infinite then.
    """

    statistics = ("training_loss.twice", "training_loss.level", "uniform_gap.jump")
    reads = ("training_loss", "uniform_gap")

    def __init__(self) -> None:
        self._recent = LastRecords()
        self._uniform = UniformAnswer()

    def update(self, observation: Observation, loss_z: float) -> tuple[float, ...]:
        """The statistics of the next record, whose loss lies so many scales above its course."""
        twice, level = self._recent.update(loss_z)
        gap = observation["uniform_gap"]
        uniform = self._uniform.update(gap) or math.isinf(gap)
        return twice, level, math.inf if uniform else 0.0 if gap == gap else math.nan
