"""A number that was fitted, and how well the runs determine it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

T = TypeVar("T")
DRAWS = 200
"""Bootstrap resamples of a number that is quickly worked out."""
FEW_DRAWS = 40
"""The same of one that is not."""


@dataclass(frozen=True)
class Estimate:
    """A fitted number with its 95 % bootstrap interval over runs."""

    value: float
    low: float
    high: float
    runs: int
    records: int
    """Records that the number rests on."""


def over_runs(
    items: Sequence[T], statistic: Callable[[Sequence[T]], float], records: int, draws: int = DRAWS
) -> Estimate | None:
    """A statistic of some runs, and its interval from resampled runs; ``None`` if it is undefined.

    >>> found = over_runs([1.0, 2.0, 3.0], lambda values: float(np.median(values)), records=3)
    >>> found.value, found.low, found.high, found.runs
    (2.0, 1.0, 3.0, 3)
    """
    value = statistic(items) if items else math.nan
    if not math.isfinite(value):
        return None
    rng = np.random.default_rng(0)
    found = [statistic([items[k] for k in rng.integers(len(items), size=len(items))]) for _ in range(draws)]
    low, high = interval(found)
    return Estimate(value, low, high, len(items), records)


def median_over_runs(values: Sequence[float], records: int) -> Estimate | None:
    """The median over runs of a number of each; runs in which it is undefined are left out."""
    return over_runs([value for value in values if math.isfinite(value)], lambda part: float(np.median(part)), records)


def interval(found: Sequence[float]) -> tuple[float, float]:
    """2.5 % and 97.5 % quantiles of the finite ones."""
    finite = np.array([value for value in found if math.isfinite(value)])
    return tuple(np.quantile(finite, [0.025, 0.975]).tolist()) if len(finite) else (math.nan, math.nan)
