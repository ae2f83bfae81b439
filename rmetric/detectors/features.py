"""Features of a record that are free of the run's trend, and models that are fitted to the start of a run."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors.base import StreamingDetector, clipped
from rmetric.detectors.drift import Drift
from rmetric.measurements import Observation
from rmetric.records import Observations, held

READS = ("training_loss", "sigma_sq", "delta_l")
CEILING = 1e6
"""Values are clipped to ± this: scikit-learn computes in single precision, and this is far outside any loss."""


class RunFeatures:
    """Three features of a record, all free of the run's trend.

    Relative change of the training loss from the record before, ΔL relative to the loss, and log of σ². ΔL and σ² that
    were not measured count as the latest known; a log without ΔL gets it from its validation losses.
    """

    def __init__(self) -> None:
        self._loss, self._delta_l, self._sigma_sq = math.nan, 0.0, 0.0
        self._drift = Drift()

    def update(self, observation: Observation) -> list[float]:
        """Features of the next record: NaN among them if they cannot be known, ``[inf]`` if an input is not finite."""
        loss, sigma_sq = observation["training_loss"], observation["sigma_sq"]
        delta_l = self._drift.update(observation)
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
            clipped((loss - previous) / scale, CEILING),
            clipped(self._delta_l / scale, CEILING),
            math.log(max(self._sigma_sq, 1e-12)),
        ]

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        """Features of the next ``n`` records, shape (n, 3): the same bits, a row of infinities for ``[inf]``."""
        loss, sigma_sq = observations["training_loss"], observations["sigma_sq"]
        delta_l = self._drift.extend(observations)
        losses = np.append(self._loss, held(loss, self._loss))
        sizes = held(np.where(np.isfinite(sigma_sq), sigma_sq, np.nan), self._sigma_sq)
        drifts = held(np.where(np.isfinite(delta_l), delta_l, np.nan), self._delta_l)
        if len(loss):
            self._loss, self._sigma_sq, self._delta_l = float(losses[-1]), float(sizes[-1]), float(drifts[-1])
        scale = np.maximum(np.abs(loss), 1e-12)
        with np.errstate(invalid="ignore", over="ignore"):  # infinity less itself; clipped below
            previous = np.where(np.isinf(losses[:-1]), np.nan, losses[:-1])
            rows = np.column_stack([(loss - previous) / scale, drifts / scale])
        logs = [math.log(size) for size in np.maximum(sizes, 1e-12).tolist()]  # NumPy's differs in the last bit
        rows = np.column_stack([np.clip(rows, -CEILING, CEILING), logs]).reshape(-1, len(READS))
        rows[np.isinf(loss) | np.isinf(sigma_sq) | np.isinf(delta_l)] = math.inf
        return rows


class StartOfRun:
    """Rows at the start of a run, and the model that is fitted to them once.

    It knows its own state as bytes (see :mod:`rmetric.state`): the rows. A restored one fits its model again, so that a
    checkpoint holds no object of another library. ``fit`` must therefore give the same model for the same rows.
    """

    __slots__ = ("_fit", "model", "rows", "seen")

    def __init__(self, fit: Callable[[NDArray[np.float64]], Any]) -> None:
        self._fit = fit
        self.model: Any = None
        self.rows: list[list[float]] = []
        self.seen = 0
        """Rows that were offered, those of the warm-up included."""

    def fit(self) -> None:
        """Fit the model to the rows."""
        self.model = self._fit(np.array(self.rows))

    def __getstate__(self) -> bytes:
        head = [float(self.model is not None), float(self.seen), float(len(self.rows))]
        return np.append(head, np.ravel(self.rows)).tobytes()

    def __setstate__(self, state: bytes) -> None:
        values = np.frombuffer(state)
        fitted, seen, rows = values[:3].tolist()
        self.seen = int(seen)
        self.rows = values[3:].reshape(int(rows), -1).tolist() if rows else []
        self.model = None
        if fitted:
            self.fit()


@dataclass(kw_only=True)
class FittedToStart(StreamingDetector):
    """A detector whose model is fitted once, to :class:`RunFeatures` of the first part of the run, and then applied.

    NaN until the reference is complete. A non-finite input scores :attr:`highest` and does not enter the reference.
    Steps and records limit the warm-up and the reference, whichever comes first: a log has a record every step, or
    every hundredth.
    """

    reads = READS
    needs = ("training_loss",)
    highest: ClassVar[float] = math.inf
    """Score of a record with an input that is not finite."""

    skipped_steps: int = 250
    """Steps of warm-up that are no part of the reference."""
    skipped_records: int = 50
    """Records of warm-up that are no part of the reference."""
    reference_steps: int = 1000
    """The model is fitted to the records up to this step."""
    reference_records: int = 150
    """The model is fitted to the first records, so many with the warm-up."""
    min_records: int = 8
    """Records that the reference must have; fitting waits for them."""
    _features: RunFeatures = field(init=False, repr=False)
    _reference: StartOfRun = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._features = RunFeatures()
        self._reference = StartOfRun(self._fit)

    @abstractmethod
    def _fit(self, samples: NDArray[np.float64]) -> Any:
        """The model of the reference, shape (records, 3); the same for the same samples."""

    @abstractmethod
    def _judge(self, model: Any, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        """Score of each sample, whatever the others are."""

    def update(self, observation: Observation) -> float:
        features = self._features.update(observation)
        if not all(map(math.isfinite, features)):
            return self.highest if any(map(math.isinf, features)) else math.nan
        if self._reference.model is not None:
            return float(self._judge(self._reference.model, np.array([features]))[0])
        self._collect(observation.step, features)
        return math.nan

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        rows = self._features.extend(observations)
        scores = np.where(np.isinf(rows).any(axis=1), self.highest, np.nan)
        finite = np.flatnonzero(np.isfinite(rows).all(axis=1))
        collected = 0
        while self._reference.model is None and collected < len(finite):
            index = finite[collected]
            self._collect(int(observations.step[index]), rows[index].tolist())
            collected += 1
        judged = finite[collected:]
        if len(judged):
            scores[judged] = self._judge(self._reference.model, rows[judged])
        return scores

    def _collect(self, step: int, features: list[float]) -> None:
        reference = self._reference
        reference.seen += 1
        if step > self.skipped_steps or reference.seen > self.skipped_records:
            reference.rows.append(features)
        complete = step >= self.reference_steps or reference.seen >= self.reference_records
        if complete and len(reference.rows) >= self.min_records:
            reference.fit()
