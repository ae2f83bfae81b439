"""Size of the parameter update against a threshold that follows it."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from rmetric.detectors.base import OneMeasurementDetector, register_detector

LARGEST = 1e150
"""Sizes are limited to it, so that the sum of a window stays finite."""


@register_detector("update_rms_threshold")
@dataclass(kw_only=True)
class UpdateRmsThreshold(OneMeasurementDetector):
    """RMS of the optimizer's update over the mean of its last values.

    .. math:: s_t = u_t / \\bar{u}_{t-1}

    An update enters the mean limited to ``threshold`` times the mean. A non-finite update scores ``+inf`` and does not
    enter.

    **Deviation:** the paper compares the RMS of an update with a dynamic threshold, to find silent data corruption;
    which one is not known here. A moving mean is this project's choice, as are window and factor.
    """

    title = "update RMS > 2 × mean"
    reads = ("update_rms",)
    source = "Altenbernd, Wiesner, Kao 2026, arXiv 2604.00726 (the signal and the idea of a dynamic threshold)"

    threshold: float = 2.0
    window: int = 64
    """Updates that are remembered."""
    warm_up: int = 32
    """Updates before the first score."""
    _recent: deque[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._recent = deque(maxlen=self.window)

    def _next(self, size: float) -> float:
        if not math.isfinite(size):
            return size
        size = min(max(size, 0.0), LARGEST)
        score = math.nan
        if self._recent and len(self._recent) >= self.warm_up:
            score, size = self._judged(size, sum(self._recent) / len(self._recent))
        self._recent.append(size)
        return score

    def _judged(self, size: float, mean: float) -> tuple[float, float]:
        """The score, and the size as it enters the mean."""
        if mean == 0.0:
            return (math.inf if size else 0.0), size
        return size / mean, min(size, self.threshold * mean)
