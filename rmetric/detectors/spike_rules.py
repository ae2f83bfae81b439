"""Spike rules: a value far above the last ones, as Lightning, OLMo, ZClip, papers and this project judge it."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from rmetric.detectors.base import (
    CompiledDetector,
    OneMeasurementDetector,
    StreamingDetector,
    clipped,
    register_detector,
)
from rmetric.measurements import LARGEST, Observation
from rmetric.records import Observations
from rmetric.robust.reference import RobustReference, logarithm

OLMO_STANDS_STILL = 1e-10
"""Below this standard deviation OLMo's rule says nothing."""
OLMO_BLOCK = 4096
"""Values that are judged at once, so that memory stays small."""
ZCLIP_EPSILON = 1e-6
"""ZClip's own guard against a deviation of 0."""
LOSS_FLOOR_NATS, UPDATE_FLOOR = 0.02, 0.05
GRADIENT_FLOOR = 0.25
"""Smallest scales of the robust z-score: of the loss, and of the logarithms of update and gradient.

Gradient norms have a heavy upper tail: healthy tiny models jump by a factor of five without harm. With this floor a
norm has to rise by a factor of twelve (e^(10 · 0.25)) before it alarms, however calm it was."""


@register_detector("lightning_spike")
@dataclass(kw_only=True)
class LightningSpike(OneMeasurementDetector):
    """Distance of the training loss from its running mean, relative to that mean, where the loss rose.

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
        loss = clipped(loss)
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


class SpikeWindow:
    """The last ``window`` finite values of one signal; each value is judged before it enters."""

    def __init__(self, window: int) -> None:
        self.window = window
        self._recent = np.empty(0)

    def extend(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Standard deviations above the mean of the window, shape (n,); NaN until the window is full."""
        scores = values.copy()
        for start in range(0, len(values), OLMO_BLOCK):
            block = scores[start : start + OLMO_BLOCK]
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
                joined[self.window :] - mean, deviation, out=np.zeros(judged), where=deviation >= OLMO_STANDS_STILL
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
        return float(self._larger(*(np.array([observation[name]]) for name in self.reads))[0])

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        return self._larger(*(observations[name] for name in self.reads))

    def _larger(self, loss: NDArray[np.float64], norm: NDArray[np.float64]) -> NDArray[np.float64]:
        # Whether fmax takes 0.0 or -0.0 depends on the length of the arrays; the sum is 0.0 for both.
        larger: NDArray[np.float64] = np.fmax(self._loss.extend(loss), self._gradient.extend(norm)) + 0.0
        return larger


@register_detector("robust_z")
@dataclass(kw_only=True)
class RobustZ(CompiledDetector):
    """Largest robust z-score of the training loss, the logarithm of the gradient norm and that of the update's RMS.

    Each is compared with the median and the MAD of the run's own last records, which a few outliers cannot move. The
    window of a ramp (warm-up) has a large MAD, so a schedule does not alarm.
    """

    title = "robust z-score"
    reads = ("training_loss", "grad_norm", "update_rms")
    source = "Iglewicz, Hoaglin 1993 (median and MAD); window and threshold: this project, on healthy tiny models"

    threshold: float = 10.0
    window: int = 64
    """Records that are remembered."""
    warm_up: int = 32
    """Records before the first score."""
    _loss: RobustReference = field(init=False, repr=False)
    _gradient: RobustReference = field(init=False, repr=False)
    _update: RobustReference = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._loss, self._update = self._reference(floor=LOSS_FLOOR_NATS), self._reference(floor=UPDATE_FLOOR)
        self._gradient = self._reference(floor=GRADIENT_FLOOR)

    def _reference(self, floor: float) -> RobustReference:
        return RobustReference(window=self.window, warm_up=self.warm_up, floor=floor, clip=self.threshold)

    def update(self, observation: Observation) -> float:
        scores = (
            self._loss.update(observation["training_loss"]),
            self._gradient.update(logarithm(observation["grad_norm"])),
            self._update.update(logarithm(observation["update_rms"])),
        )
        known = [score for score in scores if not math.isnan(score)]
        return max(known) + 0.0 if known else math.nan  # a zero without a sign: which one is the larger is not defined

    def columns(self, observations: Observations) -> NDArray[np.float64]:
        from rmetric.robust import windows  # half a second to import, and a monitor does not need it

        z = (
            windows.reference(self._loss, observations["training_loss"]),
            windows.reference(self._gradient, windows.logarithms(observations["grad_norm"])),
            windows.reference(self._update, windows.logarithms(observations["update_rms"])),
        )
        return np.fmax.reduce(z) + 0.0


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
        norm = clipped(norm)
        if math.isnan(self._mean):
            self._start(norm)
            return math.nan
        deviation = math.sqrt(self._variance)
        score = (norm - self._mean) / (deviation + ZCLIP_EPSILON)
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
