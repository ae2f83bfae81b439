"""Validation loss that rises several times in a row."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors.base import StreamingDetector, register_detector
from rmetric.records import Observation, Observations


@register_detector("validation_slope")
@dataclass(kw_only=True)
class ValidationSlope(StreamingDetector):
    """The score is the number of consecutive evaluations at which the validation loss rose.

    A non-finite validation loss scores ``+inf``. An alert is due at the third rise in a row.
    """

    title = "validation slope (3 rises)"
    reads = ("validation_loss",)
    source = "Fatima 2025 (baseline: 3 consecutive rises)"

    threshold: float = 2.5
    _previous: float = field(init=False, repr=False, default=math.nan)
    _rises: float = field(init=False, repr=False, default=math.nan)

    def update(self, observation: Observation) -> float:
        return self._next(observation["validation_loss"], observation.evaluated)

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        assert observations.evaluated is not None
        losses, evaluated = observations["validation_loss"].tolist(), observations.evaluated.tolist()
        return np.array([self._next(*row) for row in zip(losses, evaluated, strict=True)], dtype=np.float64)

    def _next(self, loss: float, evaluated: bool) -> float:
        if not evaluated:
            return self._rises
        if math.isinf(loss):
            self._rises = math.inf
        elif loss > self._previous:
            self._rises += 1.0
        else:
            self._rises = 0.0
        self._previous = loss
        return self._rises
