"""Novelty detectors fitted to the start of a run: ECOD, half-space trees, one-class SVM, and their features."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors.base import StreamingDetector, register_detector
from rmetric.records import Observation, Observations

if TYPE_CHECKING:
    from pyod.models.ecod import ECOD
    from sklearn.pipeline import Pipeline


READS = ("training_loss", "sigma_sq", "delta_l")
CEILING = 1e6
"""Values are clipped to ± this: scikit-learn computes in single precision, and this is far outside any loss."""


class RunFeatures:
    """Three features of a record, all free of the run's trend.

    Relative change of the training loss from the record before, ΔL relative to the loss, and log of σ². ΔL and σ² that
    were not measured count as the latest known.
    """

    def __init__(self) -> None:
        self._loss, self._delta_l, self._sigma_sq = math.nan, 0.0, 0.0

    def update(self, observation: Observation) -> list[float]:
        """Features of the next record: NaN among them if they cannot be known, ``[inf]`` if an input is not finite."""
        loss, sigma_sq, delta_l = (observation[name] for name in READS)
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
            clipped((loss - previous) / scale),
            clipped(self._delta_l / scale),
            math.log(max(self._sigma_sq, 1e-12)),
        ]


def clipped(value: float, ceiling: float = CEILING) -> float:
    """The value, no further from 0 than ``ceiling``; NaN stays NaN."""
    return value if math.isnan(value) else min(max(value, -ceiling), ceiling)


class Reference:
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
    _reference: Reference = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._features = RunFeatures()
        self._reference = Reference(self._fit)

    @abstractmethod
    def _fit(self, samples: NDArray[np.float64]) -> Any:
        """The model of the reference, shape (records, 3); the same for the same samples."""

    @abstractmethod
    def _judge(self, model: Any, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        """Score of each sample, whatever the others are."""

    def update(self, observation: Observation) -> float:
        features = self._features.update(observation)
        if not all(map(math.isfinite, features)):
            return self._without_features(features)
        if self._reference.model is not None:
            return float(self._judge(self._reference.model, np.array([features]))[0])
        self._collect(observation.step, features)
        return math.nan

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        scores = np.full(len(observations), np.nan)
        pending: list[int] = []
        rows: list[list[float]] = []
        for index, observation in enumerate(observations):
            features = self._features.update(observation)
            if not all(map(math.isfinite, features)):
                scores[index] = self._without_features(features)
            elif self._reference.model is None:
                self._collect(observation.step, features)
            else:
                pending.append(index)
                rows.append(features)
        if rows:
            scores[pending] = self._judge(self._reference.model, np.array(rows))
        return scores

    def _without_features(self, features: list[float]) -> float:
        return self.highest if any(map(math.isinf, features)) else math.nan

    def _collect(self, step: int, features: list[float]) -> None:
        reference = self._reference
        reference.seen += 1
        if step > self.skipped_steps or reference.seen > self.skipped_records:
            reference.rows.append(features)
        complete = step >= self.reference_steps or reference.seen >= self.reference_records
        if complete and len(reference.rows) >= self.min_records:
            reference.fit()


BLOCK = 1024
"""Records that are judged at once, so that memory stays small."""


@register_detector("ecod", needs="pyod")
@dataclass(kw_only=True)
class Ecod(FittedToStart):
    """PyOD's ECOD of the run's first records, applied to what follows one record at a time.

    The sum over features (:class:`~rmetric.detectors.novelty.RunFeatures`) of −ln of the tail probability, in
    units of PyOD's own threshold for its default contamination of 0.1. A non-finite input scores ``+inf``.

    **Deviation:** ECOD ranks a record among the reference *and all records that it is asked about together*, so that a
    whole run would be judged with knowledge of its future. Here each record stands alone beside the reference: one
    call of PyOD judges many records at once, with the reference repeated beside each in columns of its own.
    """

    title = "ECOD (causal)"
    extra = "baselines"
    source = "Li et al. 2022, arXiv 2201.00382; PyOD"

    threshold: float = 1.0

    def _fit(self, samples: NDArray[np.float64]) -> ECOD:
        from pyod.models.ecod import ECOD  # seconds to import, and an optional package

        with _quiet():
            return ECOD().fit(samples)

    def _judge(self, model: ECOD, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        reference = model.X_train
        try:
            scores = [self._tails(model, reference, samples[i : i + BLOCK]) for i in range(0, len(samples), BLOCK)]
        finally:
            model.X_train = reference
        return np.concatenate(scores) / max(model.threshold_, 1e-12)

    @staticmethod
    def _tails(model: ECOD, reference: NDArray[np.float64], samples: NDArray[np.float64]) -> NDArray[np.float64]:
        model.X_train = np.tile(reference, len(samples))
        with _quiet():
            model.decision_function(samples.reshape(1, -1))
        return model.O[-1].reshape(samples.shape).sum(axis=1)


@contextmanager
def _quiet() -> Iterator[None]:
    """A feature that stands still has no skewness, which PyOD takes as none and scipy warns of."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Precision loss occurred in moment calculation", RuntimeWarning)
        yield


SEED = 42
"""Of the trees: every run gets the same."""


class ScaledTrees:
    """river's recipe: features scaled to [0, 1] by all that was seen, then half-space trees.

    It knows its own state as bytes (see :mod:`rmetric.state`). Trees count only what fell into them in the last whole
    window and in the present one, so that these rows, learned again, restore them.
    """

    __slots__ = ("_highest", "_learned", "_lowest", "_rows", "_scaler", "_trees", "_window")

    def __init__(self, *, trees: int, height: int, window: int) -> None:
        from river.anomaly import HalfSpaceTrees  # two seconds to import; most runs do not need it
        from river.preprocessing import MinMaxScaler

        self._window = window
        self._scaler = MinMaxScaler()
        self._trees = HalfSpaceTrees(n_trees=trees, height=height, window_size=window, seed=SEED)
        self._rows: deque[list[float]] = deque(maxlen=2 * window)
        self._learned = 0
        self._lowest: list[float] = []
        self._highest: list[float] = []

    def score(self, features: list[float]) -> float:
        """Anomaly score in [0, 1]; NaN until the first window is full."""
        if self._learned < self._window:
            return math.nan
        return float(self._trees.score_one(self._scaler.transform_one(_named(features))))

    def learn(self, features: list[float]) -> None:
        """Count these features as usual."""
        self._widen(features, features)
        row = self._scaler.transform_one(_named(features))
        self._rows.append(list(row.values()))
        self._learned += 1
        self._trees.learn_one(row)

    def _widen(self, lowest: list[float], highest: list[float]) -> None:
        self._lowest = [*map(min, self._lowest or lowest, lowest)]
        self._highest = [*map(max, self._highest or highest, highest)]
        self._scaler.learn_one(_named(lowest))
        self._scaler.learn_one(_named(highest))

    def __getstate__(self) -> bytes:
        # The rows of the last whole window and of the present one; what is older has left the trees.
        kept = min(self._window + self._learned % self._window, self._learned)
        rows = list(self._rows)[len(self._rows) - kept :]
        return np.array([self._learned, *self._lowest, *self._highest, *chain(*rows)], dtype=np.float64).tobytes()

    def __setstate__(self, state: bytes) -> None:
        learned, *values = np.frombuffer(state).tolist()
        self.__init__(trees=self._trees.n_trees, height=self._trees.height, window=self._window)  # type: ignore[misc]
        if not values:
            return
        lowest, highest, *rows = (values[i : i + len(READS)] for i in range(0, len(values), len(READS)))
        self._widen(lowest, highest)
        for row in rows:
            self._rows.append(row)
            self._trees.learn_one(_named(row))
        self._learned = int(learned)


def _named(features: list[float]) -> dict[str, float]:
    return dict(zip(READS, features, strict=True))


@register_detector("half_space_trees")
@dataclass(kw_only=True)
class HalfSpaceTreesDetector(StreamingDetector):
    """river's half-space trees on :class:`~rmetric.detectors.novelty.RunFeatures`, learning as the run goes on.

    The score is river's, in [0, 1]; NaN until the first window is full. A non-finite input scores ``+inf``. A record
    that is an anomaly is not learned (as river's own filters have it), so that an outlier does not raise its own bar.

    **Deviation:** a window of 100 records instead of 250, which would pass over the first third of the runs here.
    """

    title = "half-space trees"
    reads = READS
    source = "Tan, Ting, Liu 2011; river; threshold: this project, on healthy simulated runs"

    threshold: float = 0.995
    """One healthy record of the simulated study in a thousand lies above it."""
    trees: int = 10
    height: int = 8
    """Levels of a tree."""
    window: int = 100
    """Records that the trees count; also the warm-up."""
    _features: RunFeatures = field(init=False, repr=False)
    _model: ScaledTrees = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._features = RunFeatures()
        self._model = ScaledTrees(trees=self.trees, height=self.height, window=self.window)

    def update(self, observation: Observation) -> float:
        features = self._features.update(observation)
        if not all(map(math.isfinite, features)):
            return math.inf if any(map(math.isinf, features)) else math.nan
        score = self._model.score(features)
        if not score > self.threshold:
            self._model.learn(features)
        return score


SMALLEST = 1e-300
"""The kernel of a far outlier is 0 in double precision; its logarithm is to be finite."""


@register_detector("one_class_svm")
@dataclass(kw_only=True)
class OneClassSvm(FittedToStart):
    """scikit-learn's one-class SVM of the run's first records, applied to what follows.

    .. math:: s = \\ln \\rho - \\ln \\sum_i \\alpha_i k(x_i, x)

    where k is the radial basis function with scikit-learn's default width and ρ the offset of the fitted boundary: 0 on
    the boundary, positive outside. Features (:class:`~rmetric.detectors.novelty.RunFeatures`) are scaled by their
    median and interquartile range. A non-finite input scores ``+inf``.

    **Deviation:** scikit-learn's decision function is the difference of the two, which is the same boundary, but in
    which all that lies far outside looks alike. Its default ν of 0.5 would call half of the reference outliers; ν is
    0.01 here.
    """

    title = "one-class SVM (causal)"
    source = "Schölkopf et al. 2001; scikit-learn"

    threshold: float = 0.0
    nu: float = 0.01
    """Share of the reference that may lie outside, in (0, 1]."""

    def _fit(self, samples: NDArray[np.float64]) -> Pipeline:
        from sklearn.pipeline import make_pipeline  # a quarter of a second to import, and most runs do not need it
        from sklearn.preprocessing import RobustScaler
        from sklearn.svm import OneClassSVM

        return make_pipeline(RobustScaler(), OneClassSVM(nu=self.nu)).fit(samples)

    def _judge(self, model: Pipeline, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        inside = np.maximum(model.score_samples(samples), SMALLEST)
        return np.log(np.maximum(model[-1].offset_, SMALLEST)) - np.log(inside)
