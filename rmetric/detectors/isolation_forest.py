"""Isolation Forest, as the paper's baseline applies it and in a version that could be used."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors.base import Detector, StreamingDetector, register_detector
from rmetric.records import Observation, Observations

if TYPE_CHECKING:
    from sklearn.ensemble import IsolationForest

CEILING = 1e6
"""Values are clipped to ± this: scikit-learn computes in single precision, and this is far outside any loss."""


@register_detector("isolation_forest")
@dataclass(kw_only=True)
class WholeRunIsolationForest(Detector):
    """Isolation Forest fitted to all validation losses of the run that it then judges, the future included.

    The score is scikit-learn's anomaly score, in (0, 1], held between evaluations. A non-finite loss scores 1, the
    highest score there is, and the forest is not fitted to it. Not causal: no operator could have had it. It is here
    because the paper compares with it.

    **Deviation:** the authors' ``contamination`` is not published; scikit-learn's default threshold 0.5 is used.
    """

    title = "Isolation Forest (whole run)"
    reads = ("validation_loss",)
    causal = False
    source = "Liu, Ting, Zhou 2008; applied as in Fatima 2025 (baseline)"

    threshold: float = 0.5
    trees: int = 100

    def score_run(self, observations: Observations) -> NDArray[np.float64]:
        assert observations.evaluated is not None
        losses = observations["validation_loss"]
        evaluated = observations.evaluated & ~np.isnan(losses)
        losses = losses[evaluated]
        anomaly = np.where(np.isinf(losses), 1.0, np.nan)
        usual = np.isfinite(losses)
        if usual.sum() >= 2:
            samples = np.clip(losses[usual], -CEILING, CEILING)[:, None]
            anomaly[usual] = -_fitted(samples, self.trees).score_samples(samples)
        return np.append(np.nan, anomaly)[np.cumsum(evaluated)]


@register_detector("isolation_forest_causal")
@dataclass(kw_only=True)
class CausalIsolationForest(StreamingDetector):
    """Isolation Forest fitted once, to the first part of the run, and applied to what follows.

    Features, all free of the run's trend: relative change of the training loss from the record before, ΔL relative to
    the loss, and log of σ². NaN until ``reference_steps`` have passed. A non-finite feature scores 1, the highest score
    there is, and does not enter the reference. ΔL and σ² that were not measured count as the latest known.
    """

    title = "Isolation Forest (causal)"
    reads = ("training_loss", "sigma_sq", "delta_l")
    source = "Liu, Ting, Zhou 2008"

    threshold: float = 0.7
    trees: int = 25
    skipped_steps: int = 250
    """Steps of warm-up that are no part of the reference."""
    reference_steps: int = 1000
    """The forest is fitted to the records up to this step."""
    min_records: int = 8
    """Records that the reference must have; fitting waits for them."""
    _reference: list[list[float]] = field(init=False, repr=False, default_factory=list)
    _forest: IsolationForest | None = field(init=False, repr=False, default=None)
    _loss: float = field(init=False, repr=False, default=math.nan)
    _delta_l: float = field(init=False, repr=False, default=0.0)
    _sigma_sq: float = field(init=False, repr=False, default=0.0)

    def update(self, observation: Observation) -> float:
        features = self._features(observation)
        if not all(map(math.isfinite, features)):
            return 1.0 if any(map(math.isinf, features)) else math.nan
        if self._forest is not None:
            return float(-self._forest.score_samples([features])[0])
        self._collect(observation.step, features)
        return math.nan

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        scores = np.full(len(observations), np.nan)
        pending: list[int] = []
        rows: list[list[float]] = []
        for index, observation in enumerate(observations):
            features = self._features(observation)
            if not all(map(math.isfinite, features)):
                scores[index] = 1.0 if any(map(math.isinf, features)) else math.nan
            elif self._forest is None:
                self._collect(observation.step, features)
            else:
                pending.append(index)
                rows.append(features)
        if rows:
            assert self._forest is not None
            scores[pending] = -self._forest.score_samples(rows)
        return scores

    def _features(self, observation: Observation) -> list[float]:
        loss, sigma_sq, delta_l = (observation[name] for name in self.reads)
        previous = self._loss
        if not math.isnan(loss):
            self._loss = loss
        if math.isfinite(sigma_sq):
            self._sigma_sq = sigma_sq
        if math.isfinite(delta_l):
            self._delta_l = delta_l
        if math.isinf(loss) or math.isinf(sigma_sq) or math.isinf(delta_l):
            return [math.inf]
        if math.isinf(previous):
            previous = math.nan
        scale = max(abs(loss), 1e-12)
        return [
            _clipped((loss - previous) / scale),
            _clipped(self._delta_l / scale),
            math.log(max(self._sigma_sq, 1e-12)),
        ]

    def _collect(self, step: int, features: list[float]) -> None:
        if step > self.skipped_steps:
            self._reference.append(features)
        if step >= self.reference_steps and len(self._reference) >= self.min_records:
            self._forest = _fitted(np.array(self._reference), self.trees)
            self._reference.clear()


def _clipped(value: float) -> float:
    return value if math.isnan(value) else min(max(value, -CEILING), CEILING)


def _fitted(samples: NDArray[np.float64], trees: int) -> IsolationForest:
    from sklearn.ensemble import IsolationForest  # a quarter of a second to import, and most runs do not need it

    return IsolationForest(n_estimators=trees, random_state=0).fit(samples)
