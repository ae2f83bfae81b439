"""σ² of the robust R-Metric: spread and size of gradients and updates, and numbers that no healthy step has."""

from __future__ import annotations

import math

from rmetric.records import Observation
from rmetric.robust.logarithm import logarithm
from rmetric.robust.reference import RobustReference
from rmetric.robust.schedule import Schedule
from rmetric.robust.signal import CLIP, WARM_UP, Signal

GRADIENT_FLOOR, SPREAD_FLOOR = 0.02, 0.1
"""Of logarithms: smallest scale."""
GRADIENT_ALLOWANCE = 1.5
"""Shifts of three scales are looked for: gradient norms wander, and with 1 a healthy CUSUM was three times as high."""
UPDATE_FLOOR = 0.1
"""As above. An optimizer that averages gradients makes updates so smooth, and so slowly wandering, that their own MAD
would take every change of the schedule for a shock: it is the factor that counts, in steps of 10 %."""


class GradientEvidence:
    """Statistics of σ²: gradient norm, update RMS and gradient variance, each a logarithm; broken arithmetic.

    ``non_finite_count`` is infinite in a record with a gradient that is not finite. A gradient norm or an update of
    exactly 0 is infinite too, but for the first records: a learning rate that warms up begins with an update of 0.

    ``factor`` is the logarithm of the gradient norm over its expectation, and ``vanishing`` that of its level
    over the norm: a bad batch raises the norm by much the same factor in every run, however quiet the run was before,
    and a part of the model that is dead takes the norm down, which nothing healthy does.

    A monitor measures the update when it has been made. The learning rate of the next one is known before: an update
    is taken to be as many times larger than the last as the learning rate is, if that says more than its measurement.
    A step is a quarter of the warning time where a learning rate breaks a run.
    """

    statistics = (
        "non_finite_count.jump",
        "grad_norm.jump",
        "grad_norm.factor",
        "grad_norm.vanishing",
        "grad_norm.lasting",
        "grad_norm.drift",
        "update_rms.jump",
        "sigma_sq.drift",
    )
    reads = ("non_finite_count", "grad_norm", "update_rms", "learning_rate", "sigma_sq")

    def __init__(self, window: int, warm_up: int) -> None:
        self._norm = Signal(floor=GRADIENT_FLOOR, allowance=GRADIENT_ALLOWANCE, window=window, warm_up=warm_up)
        self._update = RobustReference(window=window, warm_up=warm_up, floor=UPDATE_FLOOR, clip=CLIP)
        self._spread = Signal(floor=SPREAD_FLOOR, allowance=GRADIENT_ALLOWANCE, window=window, warm_up=warm_up)
        self._schedule = Schedule(window)
        self._norms = self._updates = 0
        self._rate = math.nan

    def update(self, observation: Observation) -> tuple[float, ...]:
        """The statistics of the next record."""
        broken = observation["non_finite_count"]
        norm, update = observation["grad_norm"], observation["update_rms"]
        planned = self._schedule.raised(observation["learning_rate"])
        jump, lasting, drift = self._norm.update(logarithm(norm), planned=planned)
        update_jump, next_jump = (
            self._update.update(logarithm(update)),
            self._next_update(update, observation["learning_rate"]),
        )
        if next_jump > update_jump:
            update_jump = next_jump
        spread = self._spread.update(logarithm(observation["sigma_sq"]), planned=planned)
        if norm == 0.0 and self._norms >= WARM_UP:
            jump = math.inf
        if update == 0.0 and self._updates >= WARM_UP:
            update_jump = math.inf
        self._norms += norm > 0.0
        self._updates += update > 0.0
        return (
            math.inf if broken > 0.0 else broken,
            jump,
            self._norm.excess,
            self._norm.shortfall,
            lasting,
            drift,
            update_jump,
            spread.drift,
        )

    def _next_update(self, update: float, rate: float) -> float:
        """z of the update that this record's learning rate announces; NaN where that cannot be told."""
        before, self._rate = self._rate, rate
        growth = logarithm(rate) - logarithm(before)
        return (logarithm(update) + growth - self._update.middle) / self._update.scale if growth > 0.0 else math.nan
