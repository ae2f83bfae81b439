"""Curves of a run for a page: thinned so that every spike stays, and what cannot be drawn told apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric.records import Observations
from rmetric.replay import Series
from rmetric.report.panels import CURVES

MOST_BUCKETS, LEAST_BUCKETS = 1500, 150
"""Stretches of steps of which a curve keeps the lowest and the highest value."""
BUCKETS_IN_ALL = 6000
"""The same for all runs of a page together, so that its size is bounded."""
MOST_NON_FINITE = 100
"""Steps of values that are not finite, which are kept for a curve."""
DIGITS = 6


def buckets_for(runs: int) -> int:
    """Stretches of a curve on a page of so many runs.

    >>> [buckets_for(runs) for runs in (1, 10, 100)]
    [1500, 600, 150]
    """
    return max(LEAST_BUCKETS, min(MOST_BUCKETS, BUCKETS_IN_ALL // max(runs, 1)))


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One measurement of one run."""

    steps: NDArray[np.int64]
    """Steps of the points that are drawn, shape (n,)."""
    values: NDArray[np.float64]
    """Their values, finite."""
    records: int
    """Values that were measured, those that are not finite included."""
    non_finite: tuple[int, ...]
    """The first steps at which it was not finite."""
    first: float
    """First finite value; NaN if there is none."""
    last: float
    """Last finite value; NaN if there is none."""

    @classmethod
    def of(cls, steps: NDArray[np.int64], values: NDArray[np.float64], buckets: int) -> Curve:
        """A curve of at most 2 · ``buckets`` points; NaN in ``values``: not measured."""
        series = Series(buckets)
        series.extend(steps, values)
        finite = values[np.isfinite(values)]
        return cls(
            steps=series.steps,
            values=series.values,
            records=int(np.count_nonzero(~np.isnan(values))),
            non_finite=tuple(steps[np.isinf(values)][:MOST_NON_FINITE].tolist()),
            first=float(finite[0]) if len(finite) else math.nan,
            last=float(finite[-1]) if len(finite) else math.nan,
        )

    def to_dict(self) -> dict[str, Any]:
        """What the page draws."""
        values = [float(f"{value:.{DIGITS}g}") for value in self.values.tolist()]
        return {"steps": self.steps.tolist(), "values": values, "nonFinite": list(self.non_finite)}


def curves_of(observations: Observations, buckets: int = MOST_BUCKETS) -> dict[str, Curve]:
    """Name → curve of what was measured. Validation losses count where they are new."""
    assert observations.evaluated is not None
    made = {}
    for name in CURVES:
        if observations.has(name):
            values = observations[name]
            if name == "validation_loss":
                values = np.where(observations.evaluated, values, np.nan)
            made[name] = Curve.of(observations.step, values, buckets)
    return made
