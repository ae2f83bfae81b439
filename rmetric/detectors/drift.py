"""ΔL as detectors see it: as a log states it, else worked out from its validation losses."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rmetric.log_writer import at_log_precision
from rmetric.measurements import Observation
from rmetric.records import Observations, held
from rmetric.signals import ValidationDrift


class Drift:
    """ΔL of a run, record by record; NaN as long as nothing is known.

    From the record on in which the run first states ΔL, it is as stated. Before that, and in a run that never does, it
    is the :class:`~rmetric.signals.ValidationDrift` of the validation losses at new evaluations, the latest value held.
    """

    def __init__(self) -> None:
        self._drift = ValidationDrift()
        self._latest = math.nan
        self._stated = False

    def update(self, observation: Observation) -> float:
        """ΔL of the next record."""
        stated = observation["delta_l"]
        if self._stated or not math.isnan(stated):
            self._stated = True
            return stated
        if observation.evaluated:
            self._evaluate(observation["validation_loss"])
        return self._latest

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        """ΔL of the next ``n`` records, shape (n,); the same bits as ``n`` times :meth:`update`."""
        values = observations["delta_l"].copy()
        stated = ~np.isnan(values)
        head = 0 if self._stated else int(stated.argmax()) if stated.any() else len(values)
        at = np.flatnonzero(observations.evaluated[:head])
        previous = self._latest
        values[at] = [self._evaluate(loss) for loss in observations["validation_loss"][at].tolist()]
        values[:head] = held(values[:head], previous)
        self._stated |= head < len(values)
        return values

    def _evaluate(self, loss: float) -> float:
        """The latest ΔL after the next evaluation."""
        drift = math.nan if math.isnan(loss) else self._drift.update(loss)
        if math.isfinite(drift):
            drift = at_log_precision(drift)
        if not math.isnan(drift):
            self._latest = drift
        return drift


def with_drift(observations: Observations) -> Observations:
    """The same observations with ΔL worked out from the validation losses, if the log states no ΔL at all.

    Real runs and the author's logs have validation losses and no ΔL; without it every detector that reads ΔL would be
    judged on a signal that it was never given. Replay does the same, chunk by chunk (:mod:`rmetric.replay.signals`).
    """
    if observations.has("delta_l") or not observations.has("validation_loss"):
        return observations
    columns = {**observations.columns, "delta_l": Drift().extend(observations)}
    return Observations(observations.step, columns, observations.evaluated)
