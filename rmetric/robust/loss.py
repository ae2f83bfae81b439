"""ΔL of the robust R-Metric: training and validation loss above their own course."""

from __future__ import annotations

import math

from rmetric.measurements import Observation
from rmetric.robust.context import RecordContext, bounded
from rmetric.robust.reference import CLIP, Cusum, RobustTrend

EVALUATION_FLOOR_NATS = 0.02
"""Smallest scale of a validation loss."""
LOSS_ALLOWANCE = 1.0
"""Shifts of two scales are looked for: where the line goes on errs by a part of a scale itself."""
EVALUATIONS_WINDOW, EVALUATIONS_WARM_UP = 16, 8
"""Evaluations are few: a shorter memory, and a judgement after eight of them."""
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
    """Statistics of ΔL: training loss, validation loss, and a loss of exactly ln(vocabulary).

    A training loss has to be high twice in a row, or to drift, to which one record adds 3 at most: a bad batch raises
    the loss as far as a broken model does, for one step.

    A model that answers every token alike has a loss of ln(vocabulary) to the last digit, and will not recover:
    ``uniform_gap`` is infinite then.
    """

    statistics = (
        "training_loss.lasting",
        "training_loss.drift",
        "validation_loss.jump",
        "uniform_gap.jump",
    )
    reads = ("training_loss", "learning_rate", "validation_loss", "uniform_gap")

    def __init__(self, _window: int, _warm_up: int) -> None:
        self._drift = Cusum(allowance=LOSS_ALLOWANCE)
        self._before = math.nan
        self._evaluation = RobustTrend(
            window=EVALUATIONS_WINDOW, warm_up=EVALUATIONS_WARM_UP, floor=EVALUATION_FLOOR_NATS, clip=CLIP
        )
        self._validation = math.nan
        self._uniform = UniformAnswer()

    def update(self, observation: Observation, context: RecordContext) -> tuple[float, ...]:
        """The statistics of the next record."""
        if observation.evaluated or math.isinf(observation["validation_loss"]):
            self._validation = self._evaluation.update(bounded(observation["validation_loss"]))
        elif math.isnan(observation["validation_loss"]):
            self._validation = math.nan
        z, before = context.loss_z, self._before
        self._before = z
        lasting = min(z, before) if before == before else math.nan
        gap = observation["uniform_gap"]
        uniform = self._uniform.update(gap) or math.isinf(gap)
        return (
            lasting,
            self._drift.update(z, planned=context.planned),
            self._validation,
            math.inf if uniform else 0.0 if gap == gap else math.nan,
        )
