"""One signal of the R-Metric at a time: the paper's σ²-only and ΔL-only baselines, and λ-only beside them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors.base import StreamingDetector, register_detector
from rmetric.metric import SlidingRange
from rmetric.records import Observation, Observations


@dataclass(kw_only=True)
class SingleSignal(StreamingDetector):
    """The score is one normalised signal, in [0, 1].

    **Deviation:** the paper does not print a threshold for its single-signal baselines; the R-Metric's 0.57 is used.
    """

    source = "Fatima 2025 (baseline)"

    threshold: float = 0.57
    window: int = 1000
    """Length of the normalisation history, in records."""
    _range: SlidingRange = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._range = SlidingRange(self.window)

    def update(self, observation: Observation) -> float:
        return self._range.update(observation[self.reads[0]])

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        return self._range.extend(observations[self.reads[0]])


@register_detector("lambda_only")
class LambdaOnly(SingleSignal):
    """Hardware failure rate alone."""

    title = "λ only"
    reads = ("lambda",)


@register_detector("sigma_sq_only")
class SigmaSqOnly(SingleSignal):
    """Gradient variance alone."""

    title = "σ² only"
    reads = ("sigma_sq",)


@register_detector("delta_l_only")
class DeltaLOnly(SingleSignal):
    """Validation-loss drift alone."""

    title = "ΔL only"
    reads = ("delta_l",)
