"""Weights of the R-Metric, fitted with its threshold to the runs they are given: never those that are scored."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmetric.evaluation.curves import paper_curve_of, strict_curve
from rmetric.evaluation.protocols import HEALTHY, WARNING, Protocol, Starts, Timeline
from rmetric.evaluation.scores import BootstrapWeights, HitCounts, f1, weighted_sums
from rmetric.evaluation.thresholds import threshold_for_f1
from rmetric.signals import Weights

WEIGHT_SUM = sum(Weights())
GRID_PARTS = 20
BOOTSTRAP_THRESHOLDS = 200


def weight_grid(parts: int = GRID_PARTS, total: float = WEIGHT_SUM) -> list[Weights]:
    """All weights of λ, σ² and ΔL in steps of ``total / parts`` that sum to ``total`` (the paper's 1.25).

    >>> len(weight_grid(20)), sum(weight_grid(20)[7])
    (231, 1.25)
    """
    unit = total / parts
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
    runs_R: NDArray[np.bool_],
    protocol: Protocol = "strict",
    grid: list[Weights] | None = None,
) -> Fitted | None:
    """Weights and threshold of highest F1 under a protocol, by exhaustive search over a grid; every threshold is tried.

    Parameters
    ----------
    timeline
        All runs.
    signals_3N
        Normalised λ, σ² and ΔL, shape (3, records).
    runs_R
        The fit half.
    grid
        Weights to try; :func:`weight_grid` if left out.

    Returns
    -------
    Fitted or None
        ``None`` if no run of the fit half failed. At a tie, the weights nearest to the paper's.
    """
    part, rows = timeline.only(runs_R)
    signals = signals_3N[:, rows]
    if not (part.failed & part.counted(protocol)).any():
        return None
    paper = np.array(Weights())
    best: tuple[float, float, Fitted] | None = None
    for weights in weight_grid() if grid is None else grid:
        scores = weights.weigh(*signals)
        if protocol == "strict":
            curve = strict_curve(part, part.starts(scores))
        else:
            curve = paper_curve_of(part, part.highest(scores))
        highest = float(curve.f1.max())
        merit = (highest, -float(np.abs(np.array(weights) - paper).sum()))
        if best is None or merit > best[:2]:
            best = (*merit, Fitted(weights, threshold_for_f1(curve), highest))
    assert best is not None
    return best[2]


def bootstrap_weights(
    timeline: Timeline,
    signals_3N: NDArray[np.float64],
    runs_R: NDArray[np.bool_],
    weights_BR: BootstrapWeights,
    grid: list[Weights] | None = None,
    thresholds: int = BOOTSTRAP_THRESHOLDS,
) -> NDArray[np.float64]:
    """Weights of highest F1 under the strict protocol in each bootstrap resample of the runs they are fitted to.

    As :func:`fit_weights`, but with thresholds at so many quantiles of the scores at which episodes begin: a whole
    resample is then one matrix product, and the quantiles of the weights hardly change.

    Parameters
    ----------
    runs_R
        The runs to fit to.
    weights_BR
        How often each of the chosen runs is drawn, shape (draws, chosen runs), from
        :func:`rmetric.evaluation.scores.resample`.

    Returns
    -------
    array
        Shape (draws, 3), NaN for a resample without a failed run.
    """
    part, rows = timeline.only(runs_R)
    signals, paper = signals_3N[:, rows], np.array(Weights())
    counted = part.counted("strict")
    failed_B = weighted_sums(weights_BR, (part.failed & counted).astype(np.float64))
    best_B, found_B3 = np.full(len(weights_BR), -1.0), np.full((len(weights_BR), 3), np.nan)
    # Nearest to the paper's first: at a tie they stay.
    for weights in sorted(
        weight_grid() if grid is None else grid, key=lambda item: np.abs(np.array(item) - paper).sum()
    ):
        tp_RT, fp_RT = _hits_by_run(part, part.starts(weights.weigh(*signals)), counted, thresholds)
        tp_BT, fp_BT = weighted_sums(weights_BR, tp_RT), weighted_sums(weights_BR, fp_RT)
        f1_B = f1(HitCounts(tp_BT, fp_BT, failed_B[:, None])).max(axis=1)  # NaN for a resample without a failed run
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

    def covered(zone: int) -> NDArray[np.float64]:
        chosen = here & (starts.zone == zone)
        change = np.zeros((len(timeline), len(limits) + 1))
        low, past = (np.searchsorted(limits, ends[chosen], side="left") for ends in (starts.low, starts.high))
        np.add.at(change, (starts.run[chosen], low), 1.0)
        np.add.at(change, (starts.run[chosen], past), -1.0)
        return np.cumsum(change, axis=1)[:, :-1]

    return np.minimum(covered(WARNING), 1.0), covered(HEALTHY)
