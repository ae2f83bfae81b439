"""ΔL of a live run: from validation losses, or from the smoothed training loss until there are two of them."""

from __future__ import annotations

import math

from rmetric.signals import ValidationDrift

VALIDATION, TRAINING = "validation loss", "smoothed training loss"
FADING = 2.0 / 51.0
"""Of the smoothing: a memory of about 50 steps."""


class LossDrift:
    """The latest ΔL, and which loss it was made of.

    Two drifts are kept apart, so that no mean ever mixes training and validation losses.
    """

    def __init__(self) -> None:
        self._validation, self._training = ValidationDrift(), ValidationDrift()
        self._smoothed = math.nan
        self._latest = math.nan
        self.source = TRAINING
        """Which loss :meth:`update` speaks of."""

    def validation(self, loss: float) -> None:
        """A new validation loss, nats."""
        drift = self._validation.update(loss)
        if not math.isnan(drift):
            self._latest, self.source = drift, VALIDATION

    def update(self, training_loss: float) -> float:
        """ΔL after a step with this training loss, nats; NaN in the first step."""
        if self.source == VALIDATION:
            return self._latest
        if not math.isfinite(training_loss):
            return math.inf
        first = math.isnan(self._smoothed)
        self._smoothed = training_loss if first else self._smoothed + FADING * (training_loss - self._smoothed)
        return self._training.update(self._smoothed)
