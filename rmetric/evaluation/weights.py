"""Weights of the R-Metric, fitted with its threshold to the runs they are given: never those that are scored."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from rmetric.evaluation.curves import Curve, covered, curve_of
from rmetric.evaluation.protocols import HEALTHY, WARNING, Protocol, Starts, Timeline
from rmetric.evaluation.scores import BootstrapWeights, HitCounts, f1, weighted_sums
from rmetric.evaluation.thresholds import threshold_for_f1
from rmetric.signals import Weights

T = TypeVar("T")
GRID_PARTS = 20
BOOTSTRAP_THRESHOLDS = 200


def weight_grid(parts: int = GRID_PARTS) -> list[Weights]:
    """All weights of λ, σ² and ΔL in so many steps that sum to the paper's 1.25.

    >>> len(weight_grid(20)), sum(weight_grid(20)[7])
    (231, 1.25)
    """
    unit = sum(Weights()) / parts
    return [
        Weights(i * unit, j * unit, (parts - i - j) * unit)
        for i, j in itertools.product(range(parts + 1), repeat=2)
        if i + j <= parts
    ]


@dataclass(frozen=True)
class Fitted:
    """Weights and threshold of highest F1 on the runs they were fitted to."""

    weights: Weights
    threshold: float
    f1: float
    """F1 on the fit half: an optimistic number, for information."""


def fit_weights(
    timeline: Timeline,
    signals_3N: NDArray[np.float64],
    protocol: Protocol = "strict",
    grid: list[Weights] | None = None,
    *,
    jobs: int | None = None,
) -> Fitted | None:
    """Weights and threshold of highest F1 under a protocol, by exhaustive search over a grid; every threshold is tried.

    Parameters
    ----------
    signals_3N
        Normalised λ, σ² and ΔL, shape (3, records).
    grid
        Weights to try; :func:`weight_grid` if left out.

    Returns
    -------
    Fitted or None
        ``None`` if none of the runs failed. At a tie, the weights nearest to the paper's.
    """
    if not (timeline.failed & timeline.counted(protocol)).any():
        return None

    def curve_with(weights: Weights) -> Curve:
        return curve_of(timeline, weights.weigh(*signals_3N), protocol)

    tried = _nearest_first(weight_grid() if grid is None else grid)
    highest = [*_each(lambda weights: float(curve_with(weights).f1.max()), tried, jobs)]
    best = tried[int(np.argmax(highest))]
    return Fitted(best, threshold_for_f1(curve_with(best)), max(highest))


def _nearest_first(grid: Iterable[Weights]) -> list[Weights]:
    """Weights in the order of their distance to the paper's: at a tie the first stays."""
    paper = np.array(Weights())
    return sorted(grid, key=lambda weights: float(np.abs(np.array(weights) - paper).sum()))


def _each(work: Callable[[Weights], T], grid: Iterable[Weights], jobs: int | None) -> Iterable[T]:
    """``work`` with all weights, in their order. Threads do: it is sorting, searching and compiled code throughout.

    The threads of a matrix product would but wait for each other beside them.
    """
    with threadpool_limits(1), ThreadPoolExecutor(jobs or os.cpu_count()) as threads:
        yield from threads.map(work, grid)


def bootstrap_weights(
    timeline: Timeline,
    signals_3N: NDArray[np.float64],
    weights_BR: BootstrapWeights,
    grid: list[Weights] | None = None,
    thresholds: int = BOOTSTRAP_THRESHOLDS,
    *,
    jobs: int | None = None,
) -> NDArray[np.float64]:
    """Weights of highest F1 under the strict protocol in each bootstrap resample of the runs they are fitted to.

    As :func:`fit_weights`, but with thresholds at so many quantiles of the scores at which episodes begin: a whole
    resample is then one matrix product, and the quantiles of the weights hardly change.

    Parameters
    ----------
    weights_BR
        How often each run is drawn, shape (draws, runs), from :func:`rmetric.evaluation.scores.resample`.

    Returns
    -------
    array
        Shape (draws, 3), NaN for a resample without a failed run.
    """
    counted = timeline.counted("strict")
    failed_B = weighted_sums(weights_BR, (timeline.failed & counted).astype(np.float64))
    best_B, found_B3 = np.full(len(weights_BR), -1.0), np.full((len(weights_BR), 3), np.nan)

    def f1_with(weights: Weights) -> NDArray[np.float64]:
        starts = timeline.starts(weights.weigh(*signals_3N))
        hits_R2T = np.hstack(_hits_by_run(timeline, starts, counted, thresholds))
        tp_BT, fp_BT = np.hsplit(weighted_sums(weights_BR, hits_R2T), 2)
        return np.asarray(f1(HitCounts(tp_BT, fp_BT, failed_B[:, None])).max(axis=1))  # NaN without a failed run

    tried = _nearest_first(weight_grid() if grid is None else grid)
    for weights, f1_B in zip(tried, _each(f1_with, tried, jobs), strict=True):
        better = f1_B > best_B
        best_B[better], found_B3[better] = f1_B[better], weights
    return found_B3


def _hits_by_run(
    timeline: Timeline, starts: Starts, counted_R: NDArray[np.bool_], thresholds: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Warned runs and false alarms of each run at some thresholds: two arrays of shape (runs, thresholds)."""
    here = counted_R[starts.run] & np.isin(starts.zone, (HEALTHY, WARNING))
    high = starts.high[here & np.isfinite(starts.high)]
    limits = np.unique(np.quantile(high, np.linspace(0.0, 1.0, thresholds))) if len(high) else np.zeros(1)
    limits = np.concatenate([[np.nextafter(limits[0], -np.inf)], limits])

    size = len(limits) + 1

    def begun(zone: int) -> NDArray[np.float64]:
        chosen = here & (starts.zone == zone)
        low, past = (np.searchsorted(limits, ends[chosen]) for ends in (starts.low, starts.high))
        first = size * starts.run[chosen]  # runs side by side: every interval ends in its own
        counts = covered(first + low, first + past, size * len(timeline)).reshape(-1, size)
        return counts[:, :-1].astype(np.float64)

    return np.minimum(begun(WARNING), 1.0), begun(HEALTHY)
