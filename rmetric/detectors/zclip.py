"""ZClip's statistic: the gradient norm against its exponential moving mean and variance."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rmetric.detectors.base import OneMeasurementDetector, register_detector
from rmetric.detectors.run_features import clipped

LARGEST_NORM = 1e150
"""Norms are clipped to it: the square of a larger one overflows and would blind the statistics for good."""
EPSILON = 1e-6
"""ZClip's own guard against a deviation of 0."""


@register_detector("zclip")
@dataclass(kw_only=True)
class ZClip(OneMeasurementDetector):
    """z-score of the gradient norm by which ZClip decides to clip.

    .. math:: z_t = (g_t - \\mu_{t-1}) / (\\sigma_{t-1} + 10^{-6})

    Mean and variance are those of the first ``warm_up`` norms, then exponential moving averages: μ ← αμ + (1 − α)g*,
    σ² ← ασ² + (1 − α)(g* − μ)². A norm above the threshold enters as ZClip would clip it, g* = μ + z_thresh² σ / z (its
    adaptive scaling). A non-finite norm scores ``+inf`` and does not enter.

    **Deviation:** ZClip sees the norm of every step; a record holds the largest of its steps.
    """

    title = "ZClip (z > 2.5)"
    reads = ("grad_norm",)
    source = "Kumar, Owen, Chowdhury, Güra 2025, arXiv 2504.02507; defaults of their code"

    threshold: float = 2.5
    alpha: float = 0.97
    """Weight of the past in the moving averages."""
    warm_up: int = 25
    """Records whose mean and variance the averages start from."""
    _first: list[float] = field(init=False, repr=False, default_factory=list)
    _mean: float = field(init=False, repr=False, default=math.nan)
    _variance: float = field(init=False, repr=False, default=math.nan)

    def _next(self, norm: float) -> float:
        if not math.isfinite(norm):
            return norm
        norm = clipped(norm, LARGEST_NORM)
        if math.isnan(self._mean):
            self._start(norm)
            return math.nan
        deviation = math.sqrt(self._variance)
        score = (norm - self._mean) / (deviation + EPSILON)
        if score > self.threshold:
            norm = self._mean + self.threshold * deviation / (score / self.threshold)
        self._mean = self.alpha * self._mean + (1.0 - self.alpha) * norm
        self._variance = self.alpha * self._variance + (1.0 - self.alpha) * (norm - self._mean) ** 2
        return score

    def _start(self, norm: float) -> None:
        self._first.append(norm)
        if len(self._first) >= self.warm_up:
            self._mean = sum(self._first) / len(self._first)
            self._variance = sum((item - self._mean) ** 2 for item in self._first) / len(self._first)
            self._first.clear()
