"""The paper's baselines: loss spike, gradient norm, validation slope, and single signals of the R-Metric."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric.compiled import compiled, pays
from rmetric.detectors.base import OneMeasurementDetector, StreamingDetector, register_detector
from rmetric.detectors.drift import Drift
from rmetric.measurements import LARGEST, Observation
from rmetric.metric import SlidingRange
from rmetric.records import Observations
from rmetric.signals import PAPER_THRESHOLD


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


@register_detector("loss_spike")
@dataclass(kw_only=True)
class LossSpike(OneMeasurementDetector):
    r"""z-score of the training loss against its exponentially weighted mean and variance.

    .. math::
        z_t = \frac{L_t - m_{t-1}}{\sqrt{q_{t-1} - m_{t-1}^2}}, \quad
        m_t = a L_t + (1 - a) m_{t-1}, \quad q_t = a L_t^2 + (1 - a) q_{t-1}

    **Deviation:** the paper gives z > 3 and no window. The weights here fade over about ``memory`` records, the loss is
    judged before it enters the statistics, and it enters them clipped at the threshold, so that an outlier never raises
    its own bar. A non-finite loss scores ``+inf`` and does not enter.
    """

    title = "loss spike (z > 3)"
    reads = ("training_loss",)
    online = True
    source = "Fatima 2025 (baseline: z > 3)"

    threshold: float = 3.0
    memory: int = 50
    """Fading memory, in records: the fading factor is 2 / (memory + 1)."""
    warm_up: int = 10
    """Records before the first score."""
    _mean: float = field(init=False, repr=False, default=0.0)
    _square: float = field(init=False, repr=False, default=0.0)
    """Weighted mean of the squares."""
    _seen: int = field(init=False, repr=False, default=0)

    def _next(self, loss: float) -> float:
        return float(self._judged(fading_z, [loss])[0])

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        losses = observations["training_loss"]
        return self._judged(compiled(fading_z), losses) if pays(0) else self._judged(fading_z, losses.tolist())

    def _judged(self, judge: Callable[..., Any], losses: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
        past = self._mean, self._square, self._seen
        scores: NDArray[np.float64]
        scores, self._mean, self._square, self._seen = judge(losses, *past, self.threshold, self.memory, self.warm_up)
        return scores


def fading_z(losses, mean, square, seen, threshold, memory, warm_up):
    """Scores of the next losses (n,), and the state behind them: fading mean, mean square, and how many were finite.

    Gives the same bits interpreted and compiled.
    """
    scores = np.empty(len(losses))
    fading = 2.0 / (memory + 1)
    for index in range(len(losses)):
        loss = losses[index]
        if loss - loss != 0.0:  # not finite
            scores[index] = loss
            continue
        score, entering = math.nan, loss
        if seen >= warm_up:
            variance = square - mean * mean
            if variance > 0:
                deviation = math.sqrt(variance)
                score = (loss - mean) / deviation
                entering = mean + threshold * deviation if score > threshold else loss
            else:
                score = 0.0 if loss <= mean else math.inf
        scores[index] = score
        if not -LARGEST <= entering <= LARGEST:
            entering = math.copysign(LARGEST, entering)
        weight = fading if seen else 1.0
        mean = weight * entering + (1.0 - weight) * mean
        square = weight * (entering * entering) + (1.0 - weight) * square
        seen += 1
    return scores, mean, square, seen


@dataclass(kw_only=True)
class SingleSignal(OneMeasurementDetector):
    """The score is one normalised signal, in [0, 1]; NaN where it was not measured.

    **Deviation:** the paper does not print a threshold for its single-signal baselines; the R-Metric's 0.57 is used.
    """

    source = "Fatima 2025 (baseline)"
    group = "single_signal"
    version = 2

    threshold: float = PAPER_THRESHOLD
    window: int = 1000
    """Length of the normalisation history, in records."""
    _range: SlidingRange = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._range = SlidingRange(self.window)

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        return self._next_values(observations[self.reads[0]])

    def _next(self, value: float) -> float:
        normalised = self._range.update(value)
        return math.nan if math.isnan(value) else normalised

    def _next_values(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(np.isnan(values), np.nan, self._range.extend(values))


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
@dataclass(kw_only=True)
class DeltaLOnly(SingleSignal):
    """Validation-loss drift alone; a log without ΔL gets it from its validation losses."""

    title = "ΔL only"
    reads = ("delta_l",)

    _drift: Drift = field(init=False, repr=False, default_factory=Drift)

    def update(self, observation: Observation) -> float:
        return self._next(self._drift.update(observation))

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        return self._next_values(self._drift.extend(observations))


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
