"""Validation losses about their lowest value, beside the training loss: what two states begin with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from rmetric.records import Observations
from rmetric.states.series import Floats, Series, falls, finite, noise, since_planned

LEAST_EVALUATIONS = 6
"""Evaluations at least, and training losses: a first one, the lowest, and the four after it that OVERFITS asks for."""
SIGNIFICANT = 0.01
"""Largest p-value of a rise of the validation loss."""
FALLING = 0.05
"""Largest p-value of a fall of the training loss over the same steps."""
FLOOR = 0.01
"""Share of the fall of the validation loss to its lowest value below which a rise is none."""
MOST_BLOCKS = 50
"""Blocks of the training loss whose medians are tested for a trend, however long the run is."""
MEDIAN = math.sqrt(math.pi / 2.0)
"""Standard error of a median of normal values, in those of their mean."""
LEAST_FIRST = 3
"""Training losses at least that tell where they stood at an evaluation."""
LEAST_BEFORE, LEAP_FACTOR = 20, 2.0
"""Training losses before a leap, of which the highest lies so many times less far above their median."""
BROKEN, BELOW = 100.0, 10.0
"""How many times smaller than before a loss gets at once that is another one, and how far below zero in the largest
before. Where examples come again, they are known better from one epoch to the next; twice as well, or ten times."""
LEAP_RECORDS = 3
"""Training losses that are so high after a leap upward; fewer are hard batches."""


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
        """Evaluations and training losses of a run so far; ``None`` if there are too few."""
        observations = since_planned(observations)
        held_out, loss = finite(observations, "validation_loss"), finite(observations, "training_loss")
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

    def training_rise(self, since: int) -> float:
        """How far the last quarter of the training losses from a step on lies above where they stood by then, nats.

        That is the lower of two medians: of as many losses before the step, which may hold the first, huge ones of a
        run; and of those from it to the next evaluation.
        """
        at = self._at(since)
        last = -(-(len(self.loss) - at) // 4)
        first = max(at + LEAST_FIRST, self._at(self._evaluated_after(since)))
        now = self.loss.values[len(self.loss) - last :]
        stood = [part for part in (self.loss.values[max(at - last, 0) : at], self.loss.values[at:first]) if len(part)]
        return float(np.median(now) - min(map(np.median, stood))) if len(now) else 0.0

    def training_difference(self, first: int, last: int, since: int) -> tuple[float, float]:
        """How far the median training loss from a step on lies above that between two steps, and its standard error.

        The error follows from the noise from loss to loss; ∞ where either are fewer than three losses.
        """
        losses: Floats = self.loss.values
        before, after = losses[self._at(first) : self._at(last + 1)], losses[self._at(since) :]
        if min(len(before), len(after)) < LEAST_FIRST:
            return 0.0, math.inf
        error = MEDIAN * noise(losses) * math.sqrt(1.0 / len(before) + 1.0 / len(after))
        return float(np.median(after) - np.median(before)), error

    @property
    def leaps_with_training(self) -> bool:
        """Whether the training loss leaps just before or after the last evaluation near the lowest one.

        Validation losses lag behind: the lowest may follow a leap that training batches show at once.
        """
        values: Floats = self.evaluations.values
        steps: NDArray[np.int64] = self.evaluations.steps
        low = int(np.flatnonzero(values <= values[self.lowest] + self.least_rise)[-1])
        about = steps[max(low - 1, 0) : low + 2].tolist()
        return any(self._leaps(first, last) for first, last in pairwise(about))

    def _leaps(self, first: int, last: int) -> bool:
        """Whether the training loss leaps between two evaluations, at these steps.

        A leap upward has three losses more than twice as far above the median of as many before it (20 at least) as
        their highest; two of them may follow the later evaluation, and one is enough where fewer lie between both.
        One downward ends at a hundredth of their lowest, or below zero by ten times their largest.
        """
        begin, end = self._at(first + 1), self._at(last + 1)
        losses: Floats = self.loss.values
        leap = losses[begin:end]
        before = losses[max(begin - max(len(leap), LEAST_BEFORE), 0) : begin]
        if not (len(leap) and len(before)):
            return False
        level, lowest = float(np.median(before)), float(leap.min())
        high = (
            leap.max() if len(leap) < LEAP_RECORDS else np.sort(losses[begin : end + LEAP_RECORDS - 1])[-LEAP_RECORDS]
        )
        upward = high - level > LEAP_FACTOR * (before.max() - level)
        broken = 0.0 < BROKEN * lowest < before.min() or lowest < -BELOW * np.abs(before).max()
        return bool(upward or broken)

    def _evaluated_after(self, step: int) -> int:
        """Step of the next evaluation, or of the last one."""
        steps: NDArray[np.int64] = self.evaluations.steps
        return int(steps[min(int(np.searchsorted(steps, step, side="right")), len(steps) - 1)])

    def _at(self, step: int) -> int:
        return int(np.searchsorted(self.loss.steps, step))
