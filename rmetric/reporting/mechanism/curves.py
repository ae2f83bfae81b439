"""What the curves of a figure show: over the seeds of a case or of its twins, the median and the range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmetric.records import Run
from rmetric.reporting.mechanism.departure import smoothed
from rmetric.reporting.mechanism.findings import MechanismResults


@dataclass(frozen=True)
class Band:
    """Of several seeds; arrays of shape (n,)."""

    since_onset: NDArray[np.int64]
    middle: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def values_of(run: Run, signal: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Steps and values of a signal where it was measured and is finite; the training loss smoothed."""
    column = run.observations[signal]
    if signal == "training_loss":
        column = smoothed(column)
    measured = np.isfinite(column)
    return run.observations.step[measured], column[measured]


def band(results: MechanismResults, signal: str, indices: Sequence[int], *, twins: bool, every: int) -> Band:
    """A signal of some faulty runs, or of their twins, over the steps since their onsets.

    Seeds have their onsets at different steps, and are measured at multiples of the stride: each is interpolated to
    common steps, as far as it was measured. A run that has ended leaves the band to the others.

    Parameters
    ----------
    results
        The study.
    signal
        A measurement.
    indices
        Faulty runs of one case.
    twins
        Their twins instead.
    every
        Steps between the points of the curve.
    """
    curves: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
    for index in indices:
        onset = results.truths[index].onset
        if onset is None:
            continue
        steps, values = values_of(results.twin_of(index) if twins else results.runs[index], signal)
        if len(steps):
            curves.append((steps - onset, values))
    if not curves:
        nothing = np.empty(0)
        return Band(np.empty(0, np.int64), nothing, nothing, nothing)
    first = max(int(steps[0]) for steps, _ in curves)
    last = max(int(steps[-1]) for steps, _ in curves)
    at = np.arange(-(-first // every) * every, last + 1, every)
    table = np.array([np.interp(at, steps, values, right=np.nan) for steps, values in curves])
    some = ~np.isnan(table).all(axis=0)
    table, at = table[:, some], at[some]
    return Band(at, np.nanmedian(table, axis=0), np.nanmin(table, axis=0), np.nanmax(table, axis=0))
