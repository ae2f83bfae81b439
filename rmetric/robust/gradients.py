"""σ² of the robust R-Metric: size and variance of gradients and updates, and numbers that no healthy step has."""

from __future__ import annotations

import math

from rmetric.measurements import Observation
from rmetric.robust.context import RecordContext
from rmetric.robust.reference import CLIP, WARM_UP, Cusum, RobustReference, RobustTrend, logarithm

GRADIENT_FLOOR, VARIANCE_FLOOR = 0.02, 0.1
"""Smallest scale of the logarithms."""
GRADIENT_ALLOWANCE = 1.5
"""Shifts of three scales are looked for: gradient norms wander, and with 1 a healthy CUSUM was three times as high."""
UPDATE_FLOOR = 0.1
"""The same of the update. An optimizer that averages gradients makes updates so smooth, and so slowly wandering, that
their own MAD would take every change of the schedule for a shock: it is the factor that counts, in steps of 10 %."""
EXPLAINED_PER_NAT = 0.6
"""Rise of the log gradient norm that a nat of loss explains, at most: the bad batches of the fit half (half of their
rows are random bytes) raised it by 0.36 to 0.62 for each nat that they raised the loss."""


class GradientEvidence:
    """Statistics of σ²: gradient norm, update RMS and gradient variance, each a logarithm; broken arithmetic.

    ``non_finite_count`` is infinite in a record with a gradient that is not finite. A gradient norm or an update of
    exactly 0 is infinite too, but for the first records: a learning rate that warms up begins with an update of 0.

    ``unexplained`` tells a broken model from a bad batch in one record. A bad batch raises the loss, and the gradient
    by what such a loss explains; a healthy gradient that stands out leaves the loss where it was; a model that breaks
    raises the loss, and the gradient by more. It is the smaller one of both excesses: of the loss in nats, and of the
    log gradient norm without what the loss explains.

    ``factor`` is the logarithm of the gradient norm over its expectation: a healthy norm leaps by much the same factor
    in every run, however quiet the run was before.

    A monitor measures the update when it has been made. The learning rate of the next one is known before: an update
    is taken to be as many times larger than the last as the learning rate is, if that says more than its measurement.
    A step is a quarter of the warning time where a learning rate breaks a run.
    """

    statistics = (
        "non_finite_count.jump",
        "grad_norm.factor",
        "grad_norm.unexplained",
        "grad_norm.drift",
        "update_rms.jump",
        "sigma_sq.drift",
    )
    reads = ("non_finite_count", "grad_norm", "training_loss", "update_rms", "learning_rate", "sigma_sq")

    def __init__(self, window: int, warm_up: int) -> None:
        self._norm = RobustTrend(window=window, warm_up=warm_up, floor=GRADIENT_FLOOR, clip=CLIP)
        self._norm_drift = Cusum(allowance=GRADIENT_ALLOWANCE)
        self._update = RobustReference(window=window, warm_up=warm_up, floor=UPDATE_FLOOR, clip=CLIP)
        self._variance = RobustTrend(window=window, warm_up=warm_up, floor=VARIANCE_FLOOR, clip=CLIP)
        self._variance_drift = Cusum(allowance=GRADIENT_ALLOWANCE)
        self._norms = self._updates = 0
        self._rate = math.nan

    def update(self, observation: Observation, context: RecordContext) -> tuple[float, ...]:
        """The statistics of the next record."""
        broken = observation["non_finite_count"]
        norm, update = observation["grad_norm"], observation["update_rms"]
        norm_z = self._norm.update(logarithm(norm))
        variance_z = self._variance.update(logarithm(observation["sigma_sq"]))
        factor, update_jump = self._norm.excess, self._update_jump(update, observation["learning_rate"])
        if norm == 0.0 and self._norms >= WARM_UP:
            factor = math.inf
        if update == 0.0 and self._updates >= WARM_UP:
            update_jump = math.inf
        self._norms += norm > 0.0
        self._updates += update > 0.0
        return (
            math.inf if broken > 0.0 else broken,
            factor,
            _unexplained(context.loss_excess_nats, self._norm.excess),
            self._norm_drift.update(norm_z, planned=context.planned),
            update_jump,
            self._variance_drift.update(variance_z, planned=context.planned),
        )

    def _update_jump(self, update: float, rate: float) -> float:
        """z of the update, or of the next one that this record's learning rate announces, if that is larger."""
        size = logarithm(update)
        z = self._update.update(size)
        growth, self._rate = logarithm(rate) - logarithm(self._rate), rate
        announced = (size + growth - self._update.middle) / self._update.scale if growth > 0.0 else math.nan
        return announced if announced > z else z


def _unexplained(loss_nats: float, log_norm: float) -> float:
    """The smaller excess, that of the norm without what the loss explains; NaN where one cannot be judged."""
    known = math.isfinite(loss_nats) and math.isfinite(log_norm)
    return min(loss_nats, log_norm - EXPLAINED_PER_NAT * loss_nats) if known else math.nan
