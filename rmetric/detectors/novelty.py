"""Novelty detectors: isolation forest, ECOD, half-space trees and one-class SVM on the features of a run.

All but two are fitted once, to the start of the run. The isolation forest of the paper's baseline is fitted to the
whole run, its future included; half-space trees learn as the run goes on.
"""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors.base import Detector, StreamingDetector, register_detector
from rmetric.detectors.features import CEILING, READS, FittedToStart, RunFeatures
from rmetric.measurements import Observation
from rmetric.records import Observations

if TYPE_CHECKING:
    from pyod.models.ecod import ECOD
    from sklearn.pipeline import Pipeline

    from rmetric.detectors.isolation import Forest

ECOD_BLOCK = 1024
"""Records that ECOD judges at once, so that memory stays small."""
TREES_SEED = 42
"""Seed of the half-space trees: every run gets the same."""
SMALLEST_KERNEL = 1e-300
"""The kernel of a far outlier is 0 in double precision; its logarithm is to be finite."""


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
        losses = observations["validation_loss"]
        evaluated = observations.evaluated & ~np.isnan(losses)
        losses = losses[evaluated]
        anomaly = np.where(np.isinf(losses), 1.0, np.nan)
        usual = np.isfinite(losses)
        if usual.sum() >= 2:
            samples = np.clip(losses[usual], -CEILING, CEILING)[:, None]
            from rmetric.detectors import isolation  # half a second to import, and most runs do not need it

            anomaly[usual] = isolation.anomaly(isolation.fit(samples, self.trees), samples)
        return np.append(np.nan, anomaly)[np.cumsum(evaluated)]


@register_detector("isolation_forest_causal")
@dataclass(kw_only=True)
class CausalIsolationForest(FittedToStart):
    """Isolation Forest fitted once, to the first part of the run, and applied to what follows.

    The score is scikit-learn's anomaly score of :class:`~rmetric.detectors.features.RunFeatures`, in (0, 1]. A
    non-finite input scores 1, the highest score there is.
    """

    title = "Isolation Forest (causal)"
    source = "Liu, Ting, Zhou 2008"
    highest = 1.0

    threshold: float = 0.7
    trees: int = 25

    def _fit(self, samples: NDArray[np.float64]) -> Forest:
        from rmetric.detectors import isolation  # half a second to import, and most runs do not need it

        return isolation.fit(samples, self.trees)

    def _judge(self, model: Forest, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        from rmetric.detectors import isolation

        return isolation.anomaly(model, samples)


@register_detector("ecod", needs="pyod")
@dataclass(kw_only=True)
class Ecod(FittedToStart):
    """PyOD's ECOD of the run's first records, applied to what follows one record at a time.

    The sum over features (:class:`~rmetric.detectors.features.RunFeatures`) of −ln of the tail probability, in
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
            scores = [
                self._tails(model, reference, samples[i : i + ECOD_BLOCK]) for i in range(0, len(samples), ECOD_BLOCK)
            ]
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
        self._trees = HalfSpaceTrees(n_trees=trees, height=height, window_size=window, seed=TREES_SEED)
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
    """river's half-space trees on :class:`~rmetric.detectors.features.RunFeatures`, learning as the run goes on.

    The score is river's, in [0, 1]; NaN until the first window is full. A non-finite input scores ``+inf``. A record
    that is an anomaly is not learned (as river's own filters have it), so that an outlier does not raise its own bar.

    **Deviation:** a window of 100 records instead of 250, which would pass over the first third of the runs here.
    """

    title = "half-space trees"
    reads = READS
    needs = ("training_loss",)
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

    def score_run(self, observations: Observations) -> NDArray[np.float64]:
        from rmetric.detectors import half_space  # half a second to import, and most runs do not need it

        splits = half_space.splits_of(READS, self.trees, self.height, self.window, TREES_SEED)
        return half_space.scores(RunFeatures().extend(observations), splits, self.threshold)


@register_detector("one_class_svm")
@dataclass(kw_only=True)
class OneClassSvm(FittedToStart):
    """scikit-learn's one-class SVM of the run's first records, applied to what follows.

    .. math:: s = \\ln \\rho - \\ln \\sum_i \\alpha_i k(x_i, x)

    where k is the radial basis function with scikit-learn's default width and ρ the offset of the fitted boundary: 0 on
    the boundary, positive outside. Features (:class:`~rmetric.detectors.features.RunFeatures`) are scaled by their
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
        inside = np.maximum(model.score_samples(samples), SMALLEST_KERNEL)
        return np.log(np.maximum(model[-1].offset_, SMALLEST_KERNEL)) - np.log(inside)
