"""The R-Metric as a detector."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors.base import StreamingDetector, register_detector
from rmetric.metric import RMetric, RValue, Weights
from rmetric.records import Observation, Observations


@register_detector("r_metric")
@dataclass(kw_only=True)
class RMetricDetector(StreamingDetector):
    """R-Metric in the paper's setting: the score is R, in [0, 1.25].

    A non-finite signal counts with its whole weight and no more: ΔL alone (0.70) raises an alert, σ² (0.45) or λ (0.10)
    alone does not.
    """

    title = "R-Metric (paper)"
    reads = ("lambda", "sigma_sq", "delta_l")
    online = True
    source = "Fatima 2025, EMNLP Industry, 2025.emnlp-industry.193"

    threshold: float = 0.57
    weights: tuple[float, float, float] = Weights()
    """Weights of λ, σ² and ΔL."""
    window: int = 1000
    """Length of each normalisation history, in records."""
    _metric: RMetric = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._metric = RMetric(weights=self.weights, threshold=self.threshold, window=self.window)

    def update(self, observation: Observation) -> float:
        return float(self.update_explained(observation).r)

    def update_explained(self, observation: Observation) -> RValue:
        """As :meth:`update`, with the three normalised signals beside R."""
        return self._metric.update(observation["lambda"], observation["sigma_sq"], observation["delta_l"])

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        return np.asarray(self.extend_explained(observations).r)

    def extend_explained(self, observations: Observations) -> RValue:
        """As :meth:`extend`, with the three normalised signals beside R, each of shape (n,)."""
        return self._metric.extend(observations["lambda"], observations["sigma_sq"], observations["delta_l"])
