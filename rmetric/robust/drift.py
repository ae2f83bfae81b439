"""ΔL of the robust R-Metric: training and validation loss above their own course."""

from __future__ import annotations

import math

from rmetric.records import Observation
from rmetric.robust.gradients import GRADIENT_FLOOR
from rmetric.robust.logarithm import logarithm
from rmetric.robust.reference import RobustReference
from rmetric.robust.signal import CLIP, Signal
from rmetric.robust.trend import RobustTrend

LOSS_FLOOR_NATS, EVALUATION_FLOOR_NATS = 0.005, 0.02
LOSS_ALLOWANCE = 0.5
"""Shifts of one scale are looked for: a batch's loss has hardly more tail than a normal distribution."""
CALM_SCALES = 3.0
"""How far above its level the logarithm of the gradient norm is still the usual one. Bad batches raise it by a factor
of 3 and more, which is 6 scales at least."""
EVALUATIONS_WINDOW, EVALUATIONS_WARM_UP = 16, 8
"""Evaluations are few: a shorter memory, and a judgement after eight of them."""
LEARNED_NATS, UNIFORM_NATS = 0.1, 2e-5
"""A model that has come 0.1 nats below ln(vocabulary) does not return to it by itself; 2e-5 is the rounding of a mean
of logarithms in single precision."""
LARGEST_NATS = 1e6
"""Beyond any loss; keeps differences finite."""


class LossEvidence:
    """Statistics of ΔL: training loss, validation loss, and a loss of exactly ln(vocabulary).

    A training loss has to be high twice in a row: a bad batch raises it as far as a broken model does, for one step.
    But what is hard to predict also has large gradients. A loss that leaps while its gradient stays is that of a model
    which can no longer learn from it, and counts at once (``alone``).

    A model that answers every token alike has a loss of ln(vocabulary) to the last digit, and will not recover:
    ``uniform_gap`` is infinite then.
    """

    statistics = (
        "training_loss.lasting",
        "training_loss.alone",
        "training_loss.drift",
        "validation_loss.jump",
        "uniform_gap.jump",
    )
    reads = ("training_loss", "grad_norm", "validation_loss", "uniform_gap")

    def __init__(self, window: int, warm_up: int) -> None:
        self._loss = Signal(floor=LOSS_FLOOR_NATS, allowance=LOSS_ALLOWANCE, window=window, warm_up=warm_up)
        self._norm = RobustReference(window=window, warm_up=warm_up, floor=GRADIENT_FLOOR, clip=CLIP)
        self._evaluation = RobustTrend(
            window=EVALUATIONS_WINDOW, warm_up=EVALUATIONS_WARM_UP, floor=EVALUATION_FLOOR_NATS, clip=CLIP
        )
        self._validation = math.nan
        self._lowest_gap = math.inf

    def update(self, observation: Observation) -> tuple[float, ...]:
        """The statistics of the next record."""
        if observation.evaluated or math.isinf(observation["validation_loss"]):
            self._validation = self._evaluation.update(_bounded(observation["validation_loss"]))
        elif math.isnan(observation["validation_loss"]):
            self._validation = math.nan
        jump, lasting, drift = self._loss.update(_bounded(observation["training_loss"]))
        norm = self._norm.update(logarithm(observation["grad_norm"]))
        return (
            lasting,
            jump if norm < CALM_SCALES else math.nan,
            drift,
            self._validation,
            self._uniform(observation["uniform_gap"]),
        )

    def _uniform(self, gap: float) -> float:
        answers_alike = abs(gap) <= UNIFORM_NATS and self._lowest_gap < -LEARNED_NATS
        if gap < self._lowest_gap:
            self._lowest_gap = gap
        return math.inf if answers_alike or math.isinf(gap) else 0.0 if gap == gap else math.nan


def _bounded(loss: float) -> float:
    return min(max(loss, -LARGEST_NATS), LARGEST_NATS) if math.isfinite(loss) else loss
