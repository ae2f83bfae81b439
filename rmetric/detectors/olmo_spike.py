"""OLMo's spike rule: more than six standard deviations above the mean of the last 128 values."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from rmetric.detectors.base import StreamingDetector, register_detector
from rmetric.records import Observation, Observations

LARGEST = 1e150
"""Values are clipped to ± this: the square of a larger one overflows."""
STANDING_STILL = 1e-10
"""Below this standard deviation the rule says nothing."""
BLOCK = 4096
"""Values that are judged at once, so that memory stays small."""


class SpikeWindow:
    """The last ``window`` finite values of one signal; each value is judged before it enters."""

    def __init__(self, window: int) -> None:
        self.window = window
        self._recent = np.empty(0)

    def extend(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Standard deviations above the mean of the window, shape (n,); NaN until the window is full."""
        scores = values.copy()
        for start in range(0, len(values), BLOCK):
            block = scores[start : start + BLOCK]
            usable = np.isfinite(block)
            block[usable] = self._judge(np.clip(block[usable], -LARGEST, LARGEST))
        return scores

    def _judge(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        joined = np.concatenate([self._recent, values])
        self._recent = joined[-self.window :].copy()
        scores = np.full(len(values), np.nan)
        judged = max(len(joined) - self.window, 0)
        if judged and self.window:
            # A copy, so that numpy sums each window in the same order, however many there are.
            windows = np.ascontiguousarray(sliding_window_view(joined[:-1], self.window))
            mean, deviation = windows.mean(axis=1), windows.std(axis=1)
            scores[-judged:] = np.divide(
                joined[self.window :] - mean, deviation, out=np.zeros(judged), where=deviation >= STANDING_STILL
            )
        return scores


@register_detector("olmo_spike")
@dataclass(kw_only=True)
class OlmoSpike(StreamingDetector):
    """The rule behind OLMo's spike score: the larger of two scores, that of the loss and that of the gradient norm.

    .. math:: z_t = (x_t - \\bar{x}) / s

    with mean and standard deviation of the last 128 values before ``x_t``; a record is a spike above 6.

    **Deviation:** OLMo publishes the share of steps that are spikes; here each step is judged. The rule is blind to a
    NaN, which is greater than no threshold and makes the window's mean NaN for 128 steps; here a non-finite value
    scores ``+inf`` and does not enter the window.
    """

    title = "OLMo spike (6 σ of 128)"
    reads = ("training_loss", "grad_norm")
    source = "OLMo 2, arXiv 2501.00656; OLMo-core's stability monitor (window 128, threshold 6)"

    threshold: float = 6.0
    window: int = 128
    """Values of each signal that are remembered; nothing is said until they are there."""
    _loss: SpikeWindow = field(init=False, repr=False)
    _gradient: SpikeWindow = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._loss, self._gradient = SpikeWindow(self.window), SpikeWindow(self.window)

    def update(self, observation: Observation) -> float:
        loss, norm = (np.array([observation[name]]) for name in self.reads)
        return float(np.fmax(self._loss.extend(loss), self._gradient.extend(norm))[0])

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        loss, norm = (observations[name] for name in self.reads)
        return np.fmax(self._loss.extend(loss), self._gradient.extend(norm))
