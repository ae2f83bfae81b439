"""The record in which a fault begins to show: the first in which a run differs visibly from its fault-free twin.

Nobody can have this in practice, for nobody trains the twin. It bounds how early a warning can be that rests on
evidence: before this record the run is, up to its noise, the healthy one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rmetric.evaluation.protocols import Timeline
from rmetric.evaluation.truth import Truth
from rmetric.records import Observations, Run
from rmetric.robust.reference import NORMAL

Floats = NDArray[np.float64]

LOGARITHMIC = ("grad_norm", "update_rms", "sigma_sq", "learning_rate")
"""Measurements that are scales: their logarithms are compared."""
LINEAR = ("training_loss", "validation_loss", "non_finite_count")
TWIN_LENGTH = 96
"""Records before the onset that say how large a measurement's noise is."""
NOISE_SCALES = 1.0
"""A smaller difference to the twin is lost in the noise of one record."""
SLOW_FACTOR = 1.5
"""A step that takes longer than the twin's usual one by this factor shows; clocks differ by less."""
STALL_FACTOR = 4.5
"""No step of the study's healthy runs takes as long, and two of all sets: such a step is a sign by itself."""


def visible_from(timeline: Timeline, runs: Sequence[Run], incidents: int = 1, scales: float = NOISE_SCALES) -> Floats:
    """1 in the record where the fault of a failed run begins to show, 0 elsewhere; shape (records,).

    Parameters
    ----------
    timeline, runs
        Of one study. Runs whose twin is not among them have no such record.
    incidents
        How many hardware events and slow steps are a sign. Healthy machines have them too: stray events alone come
        nine times in 10,000 healthy steps of the real study's control runs, so that whoever warns at the first one has
        nine times the false alarms that the budget allows; with 2 this is a bound within the budget.
    scales
        Scales of noise by which a record must differ from the twin's. That of one record in 10,000 exceeds 4 by itself.
    """
    place = {run.name: index for index, run in enumerate(runs)}
    scores = np.zeros(len(timeline.step))
    for index, (run, truth) in enumerate(zip(runs, timeline.truths, strict=True)):
        twin = place.get(str(run.config.get("twin")))
        if truth.kind == "failed" and truth.onset is not None and twin is not None:
            first = first_sign(run.observations, runs[twin].observations, truth, incidents, scales)
            if first is not None:
                scores[timeline.bounds[index] + first] = 1.0
    return scores


def first_sign(
    run: Observations, twin: Observations, truth: Truth, incidents: int = 1, scales: float = NOISE_SCALES
) -> int | None:
    """Index of the first record from the onset on that differs visibly from the twin's; ``None``: there is none."""
    assert truth.onset is not None
    length = min(len(run), len(twin))
    begin = int(np.searchsorted(run.step, truth.onset))
    shows = np.zeros(len(run), bool)
    for name in (*LINEAR, *LOGARITHMIC):
        own, other = run[name], twin[name]
        if name in LOGARITHMIC:
            own, other = _logarithm(own), _logarithm(other)
        shows[begin:length] |= _differs(own[begin:length], other[begin:length], scales * _noise(other[:begin]))
    times = twin["step_time_s"][:begin][-TWIN_LENGTH:]
    measured = times[~np.isnan(times)]
    usual = np.median(measured) if len(measured) else np.nan
    shows |= run["step_time_s"] > STALL_FACTOR * usual
    happened = np.nan_to_num(run["hardware_events"]) + (run["step_time_s"] > SLOW_FACTOR * usual)
    happened[:begin] = 0.0
    shows |= (happened > 0) & (np.cumsum(happened) >= incidents)
    shows[:begin] = False
    return int(np.argmax(shows)) if shows.any() else None


def _logarithm(values: Floats) -> Floats:
    """Logarithm of a scale; 0, which none of them ever has, becomes minus infinity."""
    with np.errstate(divide="ignore"):
        return np.log(values)


def _differs(own: Floats, other: Floats, least: float) -> NDArray[np.bool_]:
    """True where two differ by more than ``least``, or one alone is finite; never where one was not measured."""
    known = ~np.isnan(own) & ~np.isnan(other)
    both = np.isfinite(own) & np.isfinite(other)
    distance = np.abs(np.subtract(own, other, out=np.zeros(len(own)), where=both))
    return known & np.where(both, distance > least, own != other)


def _noise(values: Floats) -> float:
    """Robust standard deviation of a record's noise, of the last differences of one record to the next."""
    finite = values[np.isfinite(values)][-TWIN_LENGTH:]
    steps = np.abs(np.diff(finite))
    moved = steps[steps > 0]  # a validation loss is held from one evaluation to the next
    return float(NORMAL * np.median(moved) / np.sqrt(2.0)) if len(moved) else 0.0
