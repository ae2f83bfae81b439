"""Numbers that no healthy step produces."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors.base import StreamingDetector, register_detector
from rmetric.measurements import Observation
from rmetric.records import Observations
from rmetric.robust.gradients import Zeros
from rmetric.robust.loss import UNIFORM_NATS, UniformAnswer

OF_THE_STEP = ("training_loss", "grad_norm", "non_finite_count", "uniform_gap")
"""Measurements of the step itself."""


def zero_gradient(observation: Observation) -> bool:
    """Whether a gradient norm of exactly 0 is a sign: with a loss of exactly 0 it is none.

    A margin that all examples keep, or a reward that all answers share, has neither loss nor gradient.
    """
    return observation["grad_norm"] == 0.0 and observation["training_loss"] != 0.0


def broken_evaluation(observation: Observation) -> bool:
    """Whether a record has a new validation loss that is not finite: NaN in what evaluation alone uses."""
    return observation.evaluated and math.isinf(observation["validation_loss"])


@register_detector("numerics")
@dataclass(kw_only=True)
class Numerics(StreamingDetector):
    """Number of signs of broken arithmetic in a record; one is enough.

    1. a gradient that is not finite (a flipped exponent bit in a query or key weight; an overflow of the norm, after
       which clipping multiplies every gradient by 0 and training stands still with a normal loss),
    2. a loss that is not finite; of a validation loss in the record of its evaluation (:func:`broken_evaluation`),
    3. a gradient norm of exactly 0 with a loss that is not (:func:`zero_gradient`), unless both were 0 in a batch
       before: with a margin, two examples that are the same have a loss and no gradient. In a record that stands for
       several steps the loss may be their mean, and the gradient that of a batch that was solved: there zeros are a
       sign as :class:`~rmetric.robust.gradients.Zeros` has it,
    4. a loss of exactly ln(vocabulary), from a model that had learned more: it answers every token alike (a flipped
       exponent bit in an output projection).

    The score is infinite for a value that is not finite, else the number of signs, 0 to 3. It is NaN as long as neither
    loss nor gradient norm was measured.
    """

    version = 5
    title = "broken numbers"
    reads = (*OF_THE_STEP, "validation_loss")
    source = "this project; signs 1, 3 and 4 as measured on real runs with flipped bits"

    threshold: float = 0.0
    tolerance_nats: float = UNIFORM_NATS
    """Distance from ln(vocabulary) that counts as equal: the rounding of a mean of logarithms in single precision."""
    _uniform: UniformAnswer = field(init=False, repr=False)
    _solved: bool = field(init=False, repr=False, default=False)
    """Whether a batch had neither loss nor gradient."""
    _zeros: Zeros = field(init=False, repr=False)
    _latest_step: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        self._uniform, self._zeros = UniformAnswer(self.tolerance_nats), Zeros(warm_up=0)

    def update(self, observation: Observation) -> float:
        loss, norm = observation["training_loss"], observation["grad_norm"]
        if broken_evaluation(observation):
            return math.inf
        if math.isnan(loss) and math.isnan(norm) and math.isnan(observation["non_finite_count"]):
            return math.nan
        if any(math.isinf(observation[name]) for name in OF_THE_STEP):
            return math.inf
        uniform = self._uniform.update(observation["uniform_gap"])
        several, self._latest_step = observation.step - self._latest_step > 1, observation.step
        last = self._zeros.update(norm)
        zero = zero_gradient(observation) and not self._solved and (last or not several)
        self._solved = self._solved or (loss == 0.0 and norm == 0.0)
        return float((observation["non_finite_count"] > 0) + zero + uniform)

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        loss, norm, broken, gaps, held_out = (observations[name] for name in self.reads)
        broken_evaluations = observations.evaluated & np.isinf(held_out)
        measured = ~(np.isnan(loss) & np.isnan(norm) & np.isnan(broken)) | broken_evaluations
        infinite = np.isinf([loss, norm, broken, gaps]).any(axis=0) | broken_evaluations
        uniform = np.zeros(len(loss))
        judged = np.flatnonzero(measured & ~infinite & ~np.isnan(gaps))
        uniform[judged] = [self._uniform.update(gap) for gap in gaps[judged].tolist()]
        solved = np.logical_or.accumulate(np.append(self._solved, ~infinite & (norm == 0.0) & (loss == 0.0)))
        self._solved = bool(solved[-1])
        at = np.flatnonzero(measured & ~infinite)
        several, last = np.zeros((2, len(loss)), dtype=bool)
        several[at] = np.diff(observations.step[at], prepend=self._latest_step) > 1
        last[at] = self._zeros.extend(norm[at])
        self._latest_step = int(observations.step[at[-1]]) if len(at) else self._latest_step
        signs = uniform + (broken > 0) + ((norm == 0.0) & (loss != 0.0) & ~solved[:-1] & (last | ~several))
        return np.where(measured, np.where(infinite, math.inf, signs), math.nan)
