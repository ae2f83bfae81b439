"""Curves of a run for a page: thinned so that every spike stays, and what cannot be drawn told apart."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric.plain_numbers import rounded
from rmetric.records import Observations, Points
from rmetric.replay import Marks, Series
from rmetric.report.panels import CURVES

MOST_BUCKETS, LEAST_BUCKETS = 1500, 150
"""Stretches of steps of which a curve keeps the lowest and the highest value."""
BUCKETS_IN_ALL = 6000
"""The same for all runs of a page together, so that its size is bounded."""
DIGITS = 6


def buckets_for(runs: int) -> int:
    """Stretches of a curve on a page of so many runs.

    >>> [buckets_for(runs) for runs in (1, 10, 100)]
    [1500, 600, 150]
    """
    return max(LEAST_BUCKETS, min(MOST_BUCKETS, BUCKETS_IN_ALL // max(runs, 1)))


class ThinnedCurve:
    """One measurement of one run, thinned while its records arrive."""

    def __init__(self) -> None:
        self.records = 0
        """Values that were measured, those that are not finite included."""
        self.broken = 0
        """Those that are not finite."""
        self.first = math.nan
        """First value that was measured, infinite if that is not finite; NaN if there is none."""
        self.last = math.nan
        """Last value that was measured, likewise."""
        self._series, self._marks = Series(MOST_BUCKETS), Marks()

    def extend(self, steps: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """The next records, each of shape (n,); NaN in ``values``: not measured."""
        self._series.extend(steps, values)
        measured = values[~np.isnan(values)]
        self.records += len(measured)
        broken = steps[np.isinf(values)]
        self.broken += len(broken)
        self._marks.extend(broken)
        if len(measured):
            self.first = float(measured[0]) if math.isnan(self.first) else self.first
            self.last = float(measured[-1])

    @property
    def steps(self) -> NDArray[np.int64]:
        """Steps of the points that are drawn, shape (n,), n at most about 2 · :data:`MOST_BUCKETS`."""
        return self._series.steps

    @property
    def values(self) -> NDArray[np.float64]:
        """Values of these points, finite, shape (n,); the lowest and the highest of all are among them."""
        return self._series.values

    @property
    def non_finite(self) -> list[int]:
        """Steps at which the measurement was not finite, as many as are marked."""
        return self._marks.steps.tolist()

    def to_dict(self, buckets: int = MOST_BUCKETS) -> dict[str, Any]:
        """What the page draws, in so many stretches of steps."""
        drawn = Series(buckets)
        drawn.extend(self.steps, self.values)
        return {
            "steps": drawn.steps.tolist(),
            "values": rounded(drawn.values, DIGITS),
            "nonFinite": self.non_finite,
            "endsNotFinite": math.isinf(self.last),
        }


def extend_curves(curves: dict[str, ThinnedCurve], observations: Observations, evaluations: Points) -> None:
    """Add the next records to the curves of what was measured, by name, and evaluations to that of their losses."""
    for name in CURVES:
        held_out = name == "validation_loss"
        steps, values = evaluations if held_out else (observations.step, observations[name])
        if not np.isnan(values).all():
            curves.setdefault(name, ThinnedCurve()).extend(steps, values)
