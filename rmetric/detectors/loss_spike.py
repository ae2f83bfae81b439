"""Training loss far above its recent mean."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from river.stats import EWMean, EWVar

from rmetric.detectors.base import OneMeasurementDetector, register_detector

LARGEST_LOSS = 1e150
"""Losses enter the statistics clipped to ± this: the square of a larger one overflows and would blind them for good."""


@register_detector("loss_spike")
@dataclass(kw_only=True)
class LossSpike(OneMeasurementDetector):
    """z-score of the training loss against its exponentially weighted mean and variance (river).

    .. math:: z_t = (L_t - m_{t-1}) / s_{t-1}

    **Deviation:** the paper gives z > 3 and no window. The weights here fade over about ``memory`` records, the loss is
    judged before it enters the statistics, and it enters them clipped at the threshold, so that an outlier never raises
    its own bar. A non-finite loss scores ``+inf`` and does not enter.
    """

    title = "loss spike (z > 3)"
    reads = ("training_loss",)
    online = True
    source = "Fatima 2025 (baseline: z > 3)"

    threshold: float = 3.0
    memory: int = 50
    """Fading memory, in records: the fading factor is 2 / (memory + 1)."""
    warm_up: int = 10
    """Records before the first score."""
    _mean: EWMean = field(init=False, repr=False)
    _variance: EWVar = field(init=False, repr=False)
    _seen: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        fading = 2.0 / (self.memory + 1)
        self._mean, self._variance = EWMean(fading), EWVar(fading)

    def _next(self, loss: float) -> float:
        if not math.isfinite(loss):
            return loss
        score = math.nan
        if self._seen < self.warm_up:
            self._seen += 1
        else:
            mean, variance = self._mean.get(), self._variance.get()
            if variance > 0:
                deviation = math.sqrt(variance)
                score = (loss - mean) / deviation
                if score > self.threshold:
                    loss = mean + self.threshold * deviation
            else:
                score = 0.0 if loss <= mean else math.inf
        if not -LARGEST_LOSS <= loss <= LARGEST_LOSS:
            loss = math.copysign(LARGEST_LOSS, loss)
        self._mean.update(loss)
        self._variance.update(loss)
        return score
