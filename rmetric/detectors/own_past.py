"""What the mechanism monitors measure, against the run's own past: the frame of the detectors that read it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors.base import StreamingDetector
from rmetric.detectors.run_features import clipped
from rmetric.records import Observation, Observations
from rmetric.robust.logarithm import logarithm
from rmetric.robust.reference import RobustReference

LARGEST = 1e150
"""Values are limited to ± this, so that a difference of two stays finite."""


class Alarming(Enum):
    """Which way a measurement moves when its mechanism fails."""

    RISES = "rises"
    FALLS = "falls"
    MOVES = "moves"
    """Either way: the source names the measurement and no direction."""


@dataclass(frozen=True)
class Usual:
    """How one measurement is compared with its own past."""

    alarming: Alarming
    floor: float
    """Smallest scale of a deviation, in units of the measurement, or of its natural logarithm where that is taken."""
    logarithmic: bool = False
    """Take the natural logarithm first: for sizes, whose changes are ratios, and for entropies that collapse to nothing
    from far below 1. A value of 0 is then not judged."""


@dataclass(kw_only=True)
class OwnPastDetector(StreamingDetector):
    """Largest robust deviation of some measurements from what they were before in this run.

    .. math:: z = \\pm (x - \\tilde{x}) / \\max(1.4826 \\, MAD, floor)

    with median and MAD of the last ``window`` measured values, the sign by the direction that is alarming (|z| where
    both are). A measurement is made every so many steps; a record in between has no score. A value enters limited to
    ``threshold`` scales from the median, so that a slow collapse does not become usual at once; one that is not finite
    scores ``+inf`` and does not enter.
    """

    watched: ClassVar[Mapping[str, Usual]] = {}
    """By log name; :attr:`reads` is the names."""

    threshold: float = 3.0
    """In scales. Healthy tiny models, with other seeds than those of any table, deviated by 1 to 2.6 at most; detectors
    whose measurements leap more have a higher threshold."""
    window: int = 64
    """Measured values that are remembered."""
    warm_up: int = 16
    """Measured values before the first score."""
    _past: dict[str, RobustReference] = field(init=False, repr=False)
    _cause: str = field(init=False, repr=False, default="")

    def __post_init__(self) -> None:
        self._past = {
            name: RobustReference(window=self.window, warm_up=self.warm_up, floor=usual.floor, clip=self.threshold)
            for name, usual in self.watched.items()
        }

    @property
    def cause(self) -> str:
        return self._cause

    def update(self, observation: Observation) -> float:
        return self._next({name: observation[name] for name in self.watched})

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        scores = np.full(len(observations), np.nan)
        columns = {name: observations.columns[name] for name in self.watched if name in observations.columns}
        measured = np.zeros(len(observations), dtype=bool)
        for column in columns.values():
            measured |= ~np.isnan(column)
        for index in np.flatnonzero(measured).tolist():  # a record without any of them changes nothing
            scores[index] = self._next({name: float(column[index]) for name, column in columns.items()})
        return scores

    def _next(self, values: Mapping[str, float]) -> float:
        scores = {name: self._deviation(name, value) for name, value in values.items()}
        known = {name: score for name, score in scores.items() if not math.isnan(score)}
        self._cause = max(known, key=lambda name: known[name], default="")
        return known.get(self._cause, math.nan)

    def _deviation(self, name: str, value: float) -> float:
        """How alarming the next value of a measurement is; NaN where it was not measured, and during the warm-up."""
        if not math.isfinite(value):
            return value
        usual = self.watched[name]
        z = self._past[name].update(logarithm(value) if usual.logarithmic else clipped(value, LARGEST))
        if usual.alarming is Alarming.MOVES:
            return abs(z)
        return z if usual.alarming is Alarming.RISES else -z
