"""Lightning's SpikeDetection rule."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from rmetric.detectors.base import OneMeasurementDetector, register_detector
from rmetric.detectors.run_features import clipped

LARGEST_LOSS = 1e150
"""Losses are clipped to ± this, so that a sum of ten stays finite."""


@register_detector("lightning_spike")
@dataclass(kw_only=True)
class LightningSpike(OneMeasurementDetector):
    """How far the training loss lies from its running mean, relative to that mean, where it rose.

    .. math:: s_t = |L_t - m_{t-1}| / |m_{t-1}|, \\quad 0 \\text{ if } L_t \\le L_{t-1}

    with the mean of the last 10 losses that were no spike; Lightning calls a loss with ``s`` ≥ 2 (its ``rtol``) a
    spike, which a loss has to triple for. A non-finite loss is one (``finite_only``) and scores ``+inf``. Its ``mode``
    is ``min``, its ``atol`` unset, its ``warmup`` one batch, as by default.

    **Deviation:** Lightning stops the run at a spike and names the batches to leave out; here the run goes on, and the
    spike does not enter the mean. An alert is due above the threshold, not at it.
    """

    title = "Lightning SpikeDetection"
    reads = ("training_loss",)
    source = "Lightning 2.6, lightning.fabric.utilities.spike.SpikeDetection and its defaults"

    threshold: float = 2.0
    window: int = 10
    """Losses that the running mean is made of."""
    warm_up: int = 1
    """Records before the first score."""
    _recent: deque[float] = field(init=False, repr=False)
    _latest: float = field(init=False, repr=False, default=0.0)
    _seen: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        self._recent = deque(maxlen=self.window)

    def _next(self, loss: float) -> float:
        if not math.isfinite(loss):
            return loss
        loss = clipped(loss, LARGEST_LOSS)
        score = math.nan
        if self._seen >= self.warm_up and self._recent:
            score = self._distance(loss)
        self._seen += 1
        if not score > self.threshold:
            self._recent.append(loss)
            self._latest = loss
        return score

    def _distance(self, loss: float) -> float:
        if loss <= self._latest:
            return 0.0
        mean = sum(self._recent) / len(self._recent)
        return abs(loss - mean) / abs(mean) if mean else math.inf
