"""The R-Metric, as published and robust, as detectors."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors.base import ROBUST, CompiledDetector, StreamingDetector, register_detector
from rmetric.detectors.drift import Drift
from rmetric.measurements import Observation
from rmetric.metric import RMetric, RValue
from rmetric.records import Observations
from rmetric.robust.metric import READS, SHIPPED, RobustRMetric, RobustRValue, RobustSettings
from rmetric.robust.reference import WARM_UP, WINDOW
from rmetric.signals import PAPER_THRESHOLD, Weights


@register_detector("r_metric")
@dataclass(kw_only=True)
class RMetricDetector(StreamingDetector):
    """R-Metric in the paper's setting: the score is R, in [0, 1.25].

    A non-finite signal counts with its whole weight and no more: ΔL alone (0.70) raises an alert, σ² (0.45) or λ (0.10)
    alone does not.

    A log without ΔL gets it from its validation losses (:class:`~rmetric.detectors.drift.Drift`). A signal that was not
    measured counts for nothing, and where none of the three was the score is NaN; :meth:`lack` says what is missing.
    """

    title = "R-Metric (paper)"
    reads = ("lambda", "sigma_sq", "delta_l")
    online = True
    source = "Fatima 2025, EMNLP Industry, 2025.emnlp-industry.193"

    threshold: float = PAPER_THRESHOLD
    weights: tuple[float, float, float] = Weights()
    """Weights of λ, σ² and ΔL."""
    window: int = 1000
    """Length of each normalisation history, in records."""
    _metric: RMetric = field(init=False, repr=False)
    _drift: Drift = field(init=False, repr=False, default_factory=Drift)

    def __post_init__(self) -> None:
        self._metric = RMetric(weights=self.weights, threshold=self.threshold, window=self.window)

    def update(self, observation: Observation) -> float:
        return float(self.update_explained(observation).r)

    def update_explained(self, observation: Observation) -> RValue:
        """R and the three normalised signals of the next record."""
        return self._metric.update(observation["lambda"], observation["sigma_sq"], self._drift.update(observation))

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        return np.asarray(self.extend_explained(observations).r)

    def extend_explained(self, observations: Observations) -> RValue:
        """R and the three normalised signals of the next n records, each of shape (n,)."""
        return self._metric.extend(observations["lambda"], observations["sigma_sq"], self._drift.extend(observations))


@register_detector(ROBUST)
@dataclass(kw_only=True)
class RobustRMetricDetector(CompiledDetector):
    """R-Metric with robust, calibrated evidence (:class:`rmetric.robust.metric.RobustRMetric`): the score is R.

    Its unit is decades of rarity: evidence of 2 is as rare in healthy runs as one false alarm in 10,000 records. A
    value that is not finite scores infinity.
    """

    title = "R-Metric (robust)"
    version = 32
    reads = READS
    calibrated_on = "torch"
    fitted_files = (SHIPPED,)
    source = "components: Fatima 2025; estimators and settings: this project, fitted to healthy records"

    threshold: float = field(default_factory=lambda: RobustSettings.shipped().threshold)
    window: int = WINDOW
    """Records whose errors make a scale."""
    warm_up: int = WARM_UP
    """Records before the first judgement of a signal against its own past."""
    _metric: RobustRMetric = field(init=False, repr=False)
    _latest: RobustRValue | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        self._metric = RobustRMetric(window=self.window, warm_up=self.warm_up)

    def update(self, observation: Observation) -> float:
        return self.update_explained(observation).r

    def update_explained(self, observation: Observation) -> RobustRValue:
        """R, the evidence of each component and the cause of the next record."""
        self._latest = self._metric.update(observation)
        return self._latest

    def columns(self, observations: Observations) -> NDArray[np.float64]:
        return self._metric.r_of(observations)

    @property
    def cause(self) -> str:
        return self._latest.cause if self._latest else ""

    @property
    def carried(self) -> int:
        return self._latest.carried if self._latest else 0
