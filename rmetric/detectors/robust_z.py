"""Loss, gradient norm or update size far above what is usual for this run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rmetric.detectors.base import StreamingDetector, register_detector
from rmetric.records import Observation
from rmetric.robust.reference import RobustReference, logarithm

LOSS_FLOOR_NATS, UPDATE_FLOOR = 0.02, 0.05
GRADIENT_FLOOR = 0.25
"""Gradient norms have a heavy upper tail: healthy tiny models jump by a factor of five without harm. With this floor a
norm has to rise by a factor of twelve (e^(10 · 0.25)) before it alarms, however calm it was."""


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
            self._gradient.update(logarithm(observation["grad_norm"])),
            self._update.update(logarithm(observation["update_rms"])),
        )
        known = [score for score in scores if not math.isnan(score)]
        return max(known) if known else math.nan
