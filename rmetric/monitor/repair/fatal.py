"""Tell whether a run fails for good, or only has a bad moment."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rmetric.detectors import StreamingDetector, default_detectors
from rmetric.errors import UserError
from rmetric.measurements import Observation
from rmetric.state import restore, state_of, usable

LEAST_REFERENCE = 20
"""Losses that a reference needs."""


@dataclass(kw_only=True)
class FatalRule:
    """Tells an alert that does not pass from one that does, record by record.

    A first sign is an alert of the default detectors. From it on a run fails for good if

    - ``stays`` of the last ``of`` losses lie above the ``quantile`` of the ``reference`` losses before the first sign,
      and the newest validation loss, if there was one before the sign, is worse than ``evaluations`` before it,
    - or the loss or a gradient is not finite, in ``broken`` records in a row, or the validation loss, in
      ``broken_evaluations`` evaluations in a row: one may be a mean over no batches. (A gradient of 0 is health where
      all examples of a batch are solved.)

    The sign is forgotten ``quiet`` records after the last alert, and not before the validation loss is finite again. A
    loss says nothing of a training whose loss is no measure of success (adversaries, a target network, an annealed
    term), or while a schedule starts anew: the learning rate is ``restart`` times that of the reference, and has been
    as high before. Where a change of the training is announced, sign and reference begin anew.

    A rule has detectors of its own, so that one that has gone back with the weights judges the training that was kept.

    **Source:** this project; docs/repair.md has what other rules give on the same runs.
    """

    stays: int = 8
    of: int = 10
    quantile: float = 0.9
    reference: int = 96
    """Losses before the first sign, at most."""
    broken: int = 3
    broken_evaluations: int = 2
    quiet: int = 50
    evaluations: int = 2
    settling: int = 5
    """Records after the first sign in which a validation loss shows the shock, and not yet what comes of it."""
    restart: float = 1.5
    first_sign: int | None = field(init=False, default=None)
    """Step of the first sign of what is going on now; ``None``: nothing is."""
    _detectors: list[StreamingDetector] = field(init=False, repr=False)
    _past: deque[float] = field(init=False, repr=False)
    _rates: deque[float] = field(init=False, repr=False)
    """Learning rates of the reference."""
    _usual_rate: float = field(init=False, repr=False, default=math.inf)
    _highest_rate: float = field(init=False, repr=False, default=0.0)
    """Of all before the reference."""
    _evaluated: deque[float] = field(init=False, repr=False)
    """Validation losses before the first sign."""
    _worse: bool = field(init=False, repr=False, default=True)
    """Whether the validation loss agrees; true where there is none."""
    _above: deque[bool] = field(init=False, repr=False)
    _bar: float = field(init=False, repr=False, default=math.inf)
    _since_alert: int = field(init=False, repr=False, default=0)
    _broken_row: int = field(init=False, repr=False, default=0)
    _broken_evaluations_row: int = field(init=False, repr=False, default=0)
    """Evaluations up to the last one of this course: a rule that has gone back does not know of those it undid."""

    def __post_init__(self) -> None:
        if not 1 <= self.stays <= self.of:
            raise UserError(f"stays is {self.stays}; it must lie between 1 and of={self.of}")
        self._detectors = [*default_detectors().values()]
        self._past, self._rates = deque(maxlen=self.reference), deque(maxlen=self.reference)
        self._evaluated, self._above = deque(maxlen=self.evaluations), deque(maxlen=self.of)

    def update(self, observation: Observation, *, ahead: int = 0) -> str:
        """Return why the run fails for good as of the next record; empty: it does not.

        The training loop is so many steps ``ahead`` of the one in the record: the reason names the loop's.
        """
        loss = observation["training_loss"]
        scores = {detector.name: detector.update(observation) for detector in self._detectors}
        alert = any(scores[detector.name] > detector.threshold for detector in self._detectors)
        if observation.announced:
            self._begin_anew()
        broken = self._count_broken(observation)
        self._follow(observation.step, alert or self._broken_row > 0 or self._broken_evaluations_row > 0)
        if self.first_sign is None:
            self._learn(observation)
            return ""
        self._above.append(loss > self._bar and not self._starts_anew(observation["learning_rate"]))
        if observation.evaluated and observation.step > self.first_sign + self.settling:
            self._worse = observation["validation_loss"] > max(self._evaluated, default=-math.inf)
        if broken:
            return broken
        if sum(self._above) >= self.stays and self._worse:
            return f"the loss has stayed above {self._bar:.4g} since step {self.first_sign + ahead}"
        return ""

    def resumed(self, state: Mapping[str, Any]) -> FatalRule:
        """Another rule with these settings, which goes on from a state; an older state lacks what has come since.

        A detector that cannot go on from its own begins anew, with a warning.
        """
        fresh = replace(self)
        pairs = zip(fresh._detectors, state["_detectors"], strict=True)
        own = [usable(f"the detector {detector.name} of a policy", detector, known) for detector, known in pairs]
        rule: FatalRule = restore(fresh, {**state_of(fresh), **state, "_detectors": own})
        return rule

    def _count_broken(self, observation: Observation) -> str:
        """Return what is not finite for too long as of this record; empty: nothing. Only new evaluations count."""
        self._broken_row = self._broken_row + 1 if _is_broken(observation) else 0
        if observation.evaluated:
            lost = math.isinf(observation["validation_loss"])
            self._broken_evaluations_row = self._broken_evaluations_row + 1 if lost else 0
        if self._broken_row >= self.broken:
            return f"a loss or a gradient is not finite in {self._broken_row} records in a row"
        if observation.evaluated and self._broken_evaluations_row >= self.broken_evaluations:
            return f"the validation loss is not finite in {self._broken_evaluations_row} evaluations in a row"
        return ""

    def _begin_anew(self) -> None:
        """Forget what says nothing of the training from now on: its losses, and a sign in them."""
        self.first_sign = None
        self._past.clear()
        self._evaluated.clear()

    def _learn(self, observation: Observation) -> None:
        """Take in a record without a sign."""
        loss, rate = observation["training_loss"], observation["learning_rate"]
        if math.isfinite(loss):
            self._past.append(loss)
        if math.isfinite(rate):
            if len(self._rates) == self.reference:
                self._highest_rate = max(self._highest_rate, self._rates[0])
            self._rates.append(rate)
        if observation.evaluated:
            self._evaluated.append(observation["validation_loss"])

    def _starts_anew(self, rate: float) -> bool:
        """Return whether the rate has risen, to no more than it has been (rounding apart)."""
        return self.restart * self._usual_rate < rate <= 1.001 * self._highest_rate

    def _follow(self, step: int, alert: bool) -> None:
        """Begin, keep or forget the first sign."""
        self._since_alert = 0 if alert else self._since_alert + 1
        if alert and self.first_sign is None:
            self.first_sign = step
            self._above.clear()
            self._worse = not self._evaluated
            self._usual_rate = float(np.median(self._rates)) if self._rates else math.inf
            known = len(self._past) >= LEAST_REFERENCE
            self._bar = float(np.quantile(self._past, self.quantile)) if known else math.inf
        elif self._since_alert >= self.quiet:
            self.first_sign = None


def _is_broken(observation: Observation) -> bool:
    """Return whether the training loss or a gradient of a record is not finite."""
    values = (observation[name] for name in ("training_loss", "grad_norm"))
    return any(map(math.isinf, values)) or observation["non_finite_count"] > 0
