"""Cumulative sums of the training loss, standardised by median and MAD."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rmetric.detectors.base import OneMeasurementDetector, register_detector
from rmetric.detectors.run_features import clipped
from rmetric.robust.reference import RobustReference

LARGEST_LOSS = 1e150
"""Losses are clipped to ± this, so that a difference of two stays finite."""
FLOOR_NATS = 1e-6
"""Smallest scale: a loss that stands still is not to be divided by 0."""


@register_detector("mad_cusum")
@dataclass(kw_only=True)
class MadCusum(OneMeasurementDetector):
    """Page's two-sided CUSUM of the training loss, as post-mortem tools run it: the larger of both sums.

    .. math::
        z_t = (d_t - \\tilde{d}) / (1.4826 \\, MAD), \\quad
        S^+_t = \\max(0, S^+_{t-1} + z_t - k), \\quad S^-_t = \\max(0, S^-_{t-1} - z_t - k)

    where d is the loss minus what its level and trend had it be (Brown's double exponential smoothing), with median and
    MAD of the last ``window`` of them. A non-finite loss scores ``+inf`` and does not enter.

    **Deviation:** tools standardise the loss itself. A loss that is learned falls, and against its last 200 values the
    sums stay above h in nine of ten healthy records of the simulated study; hence the trend is removed. Tools start the
    sums again after an alarm; here they go on, so that the score says how much evidence there is, whatever the
    threshold. To keep one outlier from filling them for good, z is limited to ± ``clip``, and the loss enters level,
    trend and window limited likewise.
    """

    title = "median/MAD CUSUM (h = 5)"
    reads = ("training_loss",)
    source = (
        "Page 1954; k and h: Montgomery, Introduction to Statistical Quality Control; "
        "window and warm-up: trainscope 1.8.1, ChangePointDetector; trend: Brown 1959"
    )

    threshold: float = 5.0
    """h, in standard deviations."""
    slack: float = 0.5
    """k, in standard deviations: half the shift that is to be found."""
    window: int = 200
    """Deviations that are remembered."""
    warm_up: int = 30
    """Deviations before the first score."""
    memory: int = 10
    """Fading memory of level and trend, in records, more than 1: the fading factor is 2 / (memory + 1)."""
    clip: float = 10.0
    """Largest |z| that enters the sums."""
    _reference: RobustReference = field(init=False, repr=False)
    _mean: float = field(init=False, repr=False, default=math.nan)
    _mean_of_mean: float = field(init=False, repr=False, default=math.nan)
    _above: float = field(init=False, repr=False, default=0.0)
    _below: float = field(init=False, repr=False, default=0.0)

    def __post_init__(self) -> None:
        self._reference = RobustReference(window=self.window, warm_up=self.warm_up, floor=FLOOR_NATS, clip=self.clip)

    def _next(self, loss: float) -> float:
        if not math.isfinite(loss):
            return loss
        loss = clipped(loss, LARGEST_LOSS)
        if math.isnan(self._mean):
            self._mean = self._mean_of_mean = loss
            return math.nan
        z = self._standardised(loss)
        if math.isnan(z):
            return math.nan
        self._above = max(0.0, self._above + z - self.slack)
        self._below = max(0.0, self._below - z - self.slack)
        return max(self._above, self._below)

    def _standardised(self, loss: float) -> float:
        """z of the next loss, limited; NaN during the warm-up."""
        fading = 2.0 / (self.memory + 1)
        lag = self._mean - self._mean_of_mean
        expected = self._mean + lag + fading / (1.0 - fading) * lag
        deviation = loss - expected
        z = self._reference.update(deviation)
        if abs(z) > self.clip:
            deviation *= self.clip / abs(z)
            z = math.copysign(self.clip, z)
        self._mean += fading * (expected + deviation - self._mean)
        self._mean_of_mean += fading * (self._mean - self._mean_of_mean)
        return z
