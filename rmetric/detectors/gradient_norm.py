"""Gradient norm above a fixed limit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors.base import StreamingDetector, register_detector
from rmetric.records import Observation, Observations


@register_detector("grad_norm")
@dataclass(kw_only=True)
class GradientNorm(StreamingDetector):
    """The score is the global gradient norm itself; the paper's limit is 100."""

    title = "gradient norm > 100"
    reads = ("grad_norm",)
    online = True
    source = "Fatima 2025 (baseline: > 100)"

    threshold: float = 100.0

    def update(self, observation: Observation) -> float:
        return observation["grad_norm"]

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        return observations["grad_norm"].copy()
