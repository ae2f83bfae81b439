"""Loss, gradient norm or update size far above what is usual for this run."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field

from rmetric.detectors.base import StreamingDetector, register_detector
from rmetric.records import Observation

LOSS_FLOOR_NATS, UPDATE_FLOOR = 0.02, 0.05
GRADIENT_FLOOR = 0.25
"""Gradient norms have a heavy upper tail: healthy tiny models jump by a factor of five without harm. With this floor a
norm has to rise by a factor of twelve (e^(10 · 0.25)) before it alarms, however calm it was."""
NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""


class RobustReference:
    """Median and MAD of the last ``window`` values; a value is judged before it enters, and enters clipped.

    .. math:: z = (x - \\tilde{x}) / \\max(1.4826 \\, MAD, floor)

    Parameters
    ----------
    window, warm_up
        Values that are remembered, and that must be there before the first score.
    floor
        Smallest scale: a signal that hardly moves is not to alarm anybody by a little.
    clip
        A value enters at most this many scales away from the median, so that an outlier never raises its own bar.

    >>> reference = RobustReference(window=8, warm_up=4, floor=0.1, clip=5.0)
    >>> [reference.update(x) for x in (1.0, 1.1, 0.9, 1.0, 2.0)]
    [nan, nan, nan, nan, 10.0]
    """

    def __init__(self, *, window: int, warm_up: int, floor: float, clip: float) -> None:
        self.window, self.warm_up, self.floor, self.clip = window, warm_up, floor, clip
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []

    def update(self, value: float) -> float:
        """z of the next value; NaN for one that was not measured and during the warm-up, infinity for infinity."""
        if not math.isfinite(value):
            return value
        score = math.nan
        if len(self._recent) >= self.warm_up:
            middle = _middle(self._sorted)
            scale = max(NORMAL * _middle(sorted([abs(item - middle) for item in self._sorted])), self.floor)
            score = (value - middle) / scale
            value = min(max(value, middle - self.clip * scale), middle + self.clip * scale)
        self._remember(value)
        return score

    def _remember(self, value: float) -> None:
        if len(self._recent) == self.window:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]
        self._recent.append(value)
        insort(self._sorted, value)


def _middle(ordered: list[float]) -> float:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else 0.5 * (ordered[half - 1] + ordered[half])


@register_detector("robust_z")
@dataclass(kw_only=True)
class RobustZ(StreamingDetector):
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
            self._gradient.update(_logarithm(observation["grad_norm"])),
            self._update.update(_logarithm(observation["update_rms"])),
        )
        known = [score for score in scores if not math.isnan(score)]
        return max(known) if known else math.nan


def _logarithm(scale: float) -> float:
    """ln of a scale; NaN (nothing to be compared) for 0, which is no matter of size."""
    return math.log(scale) if scale > 0 else math.nan
