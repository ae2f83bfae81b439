"""Half-space trees (river's) on several features of the run."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from rmetric.detectors.base import StreamingDetector, register_detector
from rmetric.detectors.run_features import READS, RunFeatures
from rmetric.records import Observation

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
    """river's half-space trees on :class:`~rmetric.detectors.run_features.RunFeatures`, learning as the run goes on.

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
