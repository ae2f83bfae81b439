"""Curves of a replay for a plot, of bounded size: thinned so that every spike stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric.measurements import VERDICTS
from rmetric.records import Points

MOST_MARKS = 100
"""Steps of values that are not finite, which are kept for a curve."""


class Series:
    """One curve for a plot: at most about 2 · ``buckets`` points: both ends and the extremes of every stretch of steps.

    >>> curve = Series(buckets=2)
    >>> curve.extend(np.arange(100), np.where(np.arange(100) == 70, 9.0, 0.0))
    >>> len(curve.values) <= 6, float(curve.values.max()), int(curve.steps[-1])
    (True, 9.0, 99)
    """

    def __init__(self, buckets: int = 1500) -> None:
        self._buckets = buckets
        self._steps = np.empty(0, dtype=np.int64)
        self._values = np.empty(0)
        self._pending: list[Points] = []
        self._length = 0

    def extend(self, steps: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Append points of increasing steps, each of shape (n,); non-finite ones are left out."""
        finite = np.isfinite(values)
        self._pending.append((steps[finite], values[finite]))
        self._length += int(finite.sum())
        if self._length > 8 * self._buckets:
            self._reduce()

    def _reduce(self) -> None:
        steps = np.concatenate([self._steps, *(steps for steps, _ in self._pending)])
        values = np.concatenate([self._values, *(values for _, values in self._pending)])
        self._pending = []
        if len(steps) > 2 * self._buckets:
            width = (int(steps[-1]) - int(steps[0])) // self._buckets + 1
            bucket = (steps - steps[0]) // width
            order = np.lexsort((values, bucket))
            edges = np.flatnonzero(np.diff(bucket[order])) + 1
            lowest, highest = order[np.append(0, edges)], order[np.append(edges, len(order)) - 1]
            kept = np.unique(np.concatenate([lowest, highest, [0, len(order) - 1]]))
            steps, values = steps[kept], values[kept]
        self._steps, self._values, self._length = steps, values, len(steps)

    @property
    def steps(self) -> NDArray[np.int64]:
        """Steps of the points, increasing."""
        self._reduce()
        return self._steps

    @property
    def values(self) -> NDArray[np.float64]:
        """Values of the points, finite."""
        self._reduce()
        return self._values


class Marks:
    """Steps to be marked, at most :data:`MOST_MARKS`: the first and the last of every stretch of steps.

    >>> marks = Marks()
    >>> marks.extend(np.arange(1_000, 9_001))
    >>> marks.steps[[0, -1]].tolist(), len(marks.steps)
    ([1000, 9000], 100)
    """

    def __init__(self) -> None:
        self._series = Series(MOST_MARKS // 2)

    def extend(self, steps: NDArray[np.int64]) -> None:
        """Append increasing steps, shape (n,)."""
        self._series.extend(steps, np.zeros(len(steps)))  # of equal values the first and the last are kept

    @property
    def steps(self) -> NDArray[np.int64]:
        """Steps that are kept, increasing."""
        return self._series.steps


@dataclass
class PlotCurves:
    """Curves of a replay for a plot, of bounded size."""

    series: dict[str, Series] = field(default_factory=dict)
    """Curves by log name."""
    non_finite: dict[str, Marks] = field(default_factory=dict)
    """Where a loss was not finite, by log name."""

    @property
    def non_finite_steps(self) -> list[int]:
        """Steps at which the training or the validation loss was not finite, spread over all of them; increasing."""
        return sorted({step for marks in self.non_finite.values() for step in marks.steps.tolist()})

    def extend(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Append a chunk of :meth:`~rmetric.replay.replayer.Replayer.run`."""
        for name in ("training_loss", *VERDICTS):
            self._append(name, columns["step"], columns[name])
        self._note_non_finite("training_loss", columns["step"], columns["training_loss"])

    def extend_evaluations(self, steps: NDArray[np.int64], losses: NDArray[np.float64]) -> None:
        """Append validation losses at the steps after which they were measured."""
        self._append("validation_loss", steps, losses)
        self._note_non_finite("validation_loss", steps, losses)

    def _append(self, name: str, steps: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        self.series.setdefault(name, Series()).extend(steps, values)

    def _note_non_finite(self, name: str, steps: NDArray[np.int64], losses: NDArray[np.float64]) -> None:
        self.non_finite.setdefault(name, Marks()).extend(steps[np.isinf(losses)])
