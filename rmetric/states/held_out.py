"""Validation losses about their lowest value, beside the training loss: what two states begin with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from rmetric.records import Observations
from rmetric.states.series import Floats, Series, evaluations, falls, finite, noise, since_planned

LEAST_EVALUATIONS = 6
SIGNIFICANT = 0.01
"""Largest p-value of a rise of the validation loss."""
FALLING = 0.05
"""Largest p-value of a fall of the training loss over the same steps."""
FLOOR = 0.01
"""Share of the fall of the validation loss to its lowest value below which a rise is none."""
MOST_BLOCKS = 50


@dataclass(frozen=True)
class HeldOut:
    """Evaluations since the latest change that somebody has announced: another task may be harder to generalise."""

    evaluations: Series
    loss: Series
    """Training losses."""
    lowest: int
    """Which of the evaluations."""

    @classmethod
    def of(cls, observations: Observations) -> Self | None:
        """Those of a run so far; ``None`` if there are too few."""
        observations = since_planned(observations)
        held_out, loss = evaluations(observations), finite(observations, "training_loss")
        if len(held_out) < LEAST_EVALUATIONS or len(loss) < LEAST_EVALUATIONS:
            return None
        return cls(held_out, loss, int(held_out.values.argmin()))

    @property
    def least_rise(self) -> float:
        """What a rise has to be above: the noise of an evaluation, and a share of the fall before."""
        values: Floats = self.evaluations.values
        return max(noise(values), FLOOR * abs(float(values[0] - values[self.lowest])))

    def training_falls(self, since: int) -> float:
        """p-value of a fall of the training loss from a step on."""
        training = self.loss.part(slice(self._at(since), None))
        return falls(training.blocks(MOST_BLOCKS).values) if len(training) else 1.0

    def training_ends_higher(self, since: int) -> bool:
        """Whether the last quarter of the training losses from a step on lies above as many losses before it."""
        at = self._at(since)
        last = -(-(len(self.loss) - at) // 4)
        before, now = self.loss.values[max(at - last, 0) : at], self.loss.values[len(self.loss) - last :]
        return bool(len(before) and len(now) and np.median(now) > np.median(before))

    def _at(self, step: int) -> int:
        return int(np.searchsorted(self.loss.steps, step))
