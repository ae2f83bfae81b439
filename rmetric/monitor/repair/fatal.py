"""Tell whether a run fails for good, or only has a bad moment."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from rmetric.detectors import DEFAULT_DETECTORS, StreamingDetector, make_detector
from rmetric.measurements import Observation

LEAST_REFERENCE = 20
"""Losses that a reference needs."""


@dataclass(kw_only=True)
class FatalRule:
    """Tells an alert that does not pass from one that does, record by record.

    A first sign is an alert of the default detectors. From it on a run fails for good if

    - ``stays`` of the last ``of`` losses lie above the ``quantile`` of the ``reference`` losses before the first sign,
    - or the loss, the last validation loss or a gradient is not finite, ``broken`` times in a row. (A gradient of 0 is
      health where all examples of a batch are solved.)

    The sign is forgotten ``quiet`` records after the last alert.

    A rule has detectors of its own, so that one that has gone back with the weights judges the training that was kept.

    **Source:** this project; docs/repair.md has what other rules give on the same runs.
    """

    stays: int = 8
    of: int = 10
    quantile: float = 0.9
    reference: int = 96
    """Losses before the first sign, at most."""
    broken: int = 3
    quiet: int = 50
    first_sign: int | None = field(init=False, default=None)
    """Step of the first sign of what is going on now; ``None``: nothing is."""
    _detectors: list[StreamingDetector] = field(init=False, repr=False)
    _past: deque[float] = field(init=False, repr=False)
    _above: deque[bool] = field(init=False, repr=False)
    _bar: float = field(init=False, repr=False, default=math.inf)
    _since_alert: int = field(init=False, repr=False, default=0)
    _broken_row: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        if not 1 <= self.stays <= self.of:
            raise ValueError(f"stays is {self.stays}; it must lie between 1 and of={self.of}")
        self._detectors = [make_detector(name) for name in DEFAULT_DETECTORS]  # type: ignore[misc]
        self._past, self._above = deque(maxlen=self.reference), deque(maxlen=self.of)

    def update(self, observation: Observation) -> str:
        """Return why the run fails for good as of the next record; empty: it does not."""
        loss = observation["training_loss"]
        scores = {detector.name: detector.update(observation) for detector in self._detectors}
        alert = any(scores[detector.name] > detector.threshold for detector in self._detectors)
        no_number = not_finite(observation)
        self._broken_row = self._broken_row + 1 if no_number else 0
        self._follow(observation.step, alert or no_number)
        if self.first_sign is None:
            if math.isfinite(loss):
                self._past.append(loss)
            return ""
        self._above.append(loss > self._bar)
        if self._broken_row >= self.broken:
            return f"a loss or a gradient is not finite in {self._broken_row} records in a row"
        if sum(self._above) >= self.stays:
            return f"the loss has stayed above {self._bar:.4g} since step {self.first_sign}"
        return ""

    def _follow(self, step: int, alert: bool) -> None:
        """Begin, keep or forget the first sign."""
        self._since_alert = 0 if alert else self._since_alert + 1
        if alert and self.first_sign is None:
            self.first_sign = step
            self._above.clear()
            known = len(self._past) >= LEAST_REFERENCE
            self._bar = float(np.quantile(self._past, self.quantile)) if known else math.inf
        elif self._since_alert >= self.quiet:
            self.first_sign = None


def not_finite(observation: Observation) -> bool:
    """Return whether a loss or a gradient of a record is not finite."""
    values = (observation[name] for name in ("training_loss", "validation_loss", "grad_norm"))
    return any(map(math.isinf, values)) or observation["non_finite_count"] > 0
