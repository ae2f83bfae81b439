"""95 % intervals: bootstrap over runs, exact Poisson bounds."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, chi2

LEVEL = 0.95
DRAWS = 2000
MAX_UNDEFINED = 0.05
"""No interval is given when the score is undefined in more than this share of the resamples."""


def resample(runs: int, draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """How often each run is drawn in each bootstrap resample, shape (draws, runs); every row sums to ``runs``.

    Counts of a whole resample are then one matrix product with the counts of the runs, and two detectors are compared
    in pairs by use of the same weights.

    >>> resample(4, 2, np.random.default_rng(0)).sum(axis=1).tolist()
    [4.0, 4.0]
    """
    if runs == 0:
        return np.zeros((draws, 0))
    chosen = rng.integers(runs, size=(draws, runs)) + np.arange(draws)[:, None] * runs
    return np.bincount(chosen.ravel(), minlength=draws * runs).reshape(draws, runs).astype(np.float64)


def percentile_interval(values: NDArray[np.float64], level: float = LEVEL) -> tuple[float, float]:
    """Percentile interval of a bootstrapped score, shape (draws,); (NaN, NaN) if it is too often undefined.

    >>> [round(end, 6) for end in percentile_interval(np.arange(201.0))]
    [5.0, 195.0]
    """
    undefined = np.isnan(values)
    if not len(values) or undefined.mean() > MAX_UNDEFINED:
        return math.nan, math.nan
    tail = 100.0 * (1.0 - level) / 2.0
    low, high = np.percentile(values[~undefined], [tail, 100.0 - tail])
    return float(low), float(high)


def binomial_interval(hits: float, trials: float, level: float = LEVEL) -> tuple[float, float]:
    """Exact two-sided interval of a share of which ``hits`` in ``trials`` were seen.

    **Source:** Clopper and Pearson 1934.

    >>> [round(end, 3) for end in binomial_interval(0, 10)]
    [0.0, 0.308]
    """
    tail = (1.0 - level) / 2.0
    low = float(beta.ppf(tail, hits, trials - hits + 1.0)) if hits > 0 else 0.0
    high = float(beta.ppf(1.0 - tail, hits + 1.0, trials - hits)) if hits < trials else 1.0
    return low, high


def poisson_upper(events: float, level: float = LEVEL) -> float:
    """Exact one-sided upper bound of a Poisson mean of which ``events`` were seen.

    .. math:: \\chi^2_{level}(2 (events + 1)) / 2

    **Source:** Garwood 1936.

    >>> round(poisson_upper(0), 3)  # the rule of three
    2.996
    """
    return float(chi2.ppf(level, 2.0 * (events + 1.0)) / 2.0)
