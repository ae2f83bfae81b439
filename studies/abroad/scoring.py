"""What a detector's scores are worth on one group of runs: false alarms with exact bounds, failures, instabilities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmetric.errors import UserError
from rmetric.evaluation.protocols import HEALTHY, IGNORED, Timeline
from rmetric.evaluation.scores import HitCounts, Score, f1, poisson_interval
from rmetric.evaluation.visibility import NOISE_SCALES, visible_from
from rmetric.reporting.table import Cell
from studies.abroad.labels import TOLERANCE
from studies.abroad.sources import Group, RunSet

PER = 10_000
AGES = {"first_per_10000": slice(0, 100), "later_per_10000": slice(700, None)}
"""Column → the records of each run that it is about: false alarms come early, before a run's habits are known."""
MEASURED = ("false_alarms", "false_alarms_per_10000", *AGES, "recall", "f1", "lead", "seen")
"""Columns that say how a detector did."""
NOBODY_TO_WARN = "no run failed that could have been warned"
ALERTED, ALERT_THRESHOLD = 1.0, 0.5
"""Score of a record at which a file of alerts has one, and the threshold for such scores."""
BEYOND_NOISE = 4.0
"""Scales by which the noise of one record in 10,000 differs from nothing."""
BOUNDS = {"visibility_bound": NOISE_SCALES, "visibility_bound, beyond noise": BEYOND_NOISE}
"""Name of a bound, and the scales of noise by which a record must differ from the twin's to be a sign."""
SIGNS = 2
"""Hardware events and slow steps that are a sign: with one, the bound would break the budget."""


def poisson_rate(events: int, steps: int) -> Score:
    """Events per 10,000 steps with the exact two-sided 95 % interval.

    >>> round(poisson_rate(0, 10_000).high, 3)
    3.689
    """
    if steps <= 0:
        return Score.undefined("there is no healthy step")
    low, high = poisson_interval(events)
    return Score(PER * events / steps, PER * low / steps, PER * high / steps)


@dataclass(frozen=True)
class Judged:
    """One detector on one source, counted run by run; arrays of shape (runs,)."""

    false_alarms: NDArray[np.int64]
    healthy: NDArray[np.int64]
    of_age: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]
    """By :data:`AGES` the same two, of these records alone."""
    warned: NDArray[np.int64]
    missed: NDArray[np.int64]
    """Failed runs without a warning that had a record in which one could have come."""
    lead: NDArray[np.float64]
    instabilities: NDArray[np.int64]
    seen: NDArray[np.int64]
    """Instabilities, those that end in a failure included, with an alert within 3 records of their beginning."""
    scored: NDArray[np.int64]
    """Records that the detector had a score for."""


def judge(source: RunSet, scores: NDArray[np.float64], threshold: float) -> Judged:
    """Counts of scores of all records of a source, shape (records,), at a threshold."""
    timeline = source.timeline
    counts = timeline.count("strict", scores, threshold)
    ages = {name: _of_age(timeline, age).count("strict", scores, threshold) for name, age in AGES.items()}
    instabilities, seen = _seen(source, scores > threshold)
    return Judged(
        false_alarms=counts.fp, healthy=counts.healthy_steps,
        of_age={name: (found.fp, found.healthy_steps) for name, found in ages.items()},
        warned=counts.tp, missed=counts.fn * timeline.warnable, lead=counts.lead,
        instabilities=instabilities, seen=seen,
        scored=np.bincount(timeline.run[~np.isnan(scores)], minlength=len(timeline)),
    )  # fmt: skip


def bounds(source: RunSet) -> dict[str, Judged]:
    """What somebody would reach who has each failed run's fault-free twin, by :data:`BOUNDS`; empty without twins.

    Nobody trains the twin, so that no detector comes near. It alarms in no healthy record.
    """
    runs, timeline = source.study.runs, source.timeline
    found = {name: visible_from(timeline, runs, SIGNS, scales) for name, scales in BOUNDS.items()}
    return {name: judge(source, scores, ALERT_THRESHOLD) for name, scores in found.items() if scores.any()}


def _of_age(timeline: Timeline, age: slice) -> Timeline:
    """The same with nothing but these records of each run."""
    inside, healthy = np.zeros(len(timeline.run), dtype=bool), timeline.zone == HEALTHY
    for run in range(len(timeline)):
        inside[timeline.records(run)][age] = True
    records, of_them = (
        np.bincount(timeline.run[mask], minlength=len(timeline)) for mask in (healthy, healthy & inside)
    )
    kept = np.divide(of_them, records, out=np.zeros(len(timeline)), where=records > 0)
    zone = np.where(inside, timeline.zone, IGNORED).astype(np.int8)
    return replace(timeline, zone=zone, healthy_steps=np.rint(timeline.healthy_steps * kept).astype(np.int64))


def _seen(source: RunSet, alerts: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    there, seen = np.zeros((2, len(source.timeline)), dtype=np.int64)
    for run, due in instabilities(source):
        there[run] += 1
        seen[run] += alerts[source.timeline.records(run)][due].any()
    return there, seen


def instabilities(source: RunSet) -> Iterator[tuple[int, slice]]:
    """Number of a run, and its records in which an alert detects an instability; of all runs that have labels."""
    for run, label in enumerate(source.labels):
        for item in label.excursions:
            yield run, slice(max(item.rise - TOLERANCE, 0), item.begin + TOLERANCE + 1)


def row(source: RunSet, group: Group, detector: str, judged: Judged) -> dict[str, Cell]:
    """One line of the long table."""
    chosen = group.runs

    def total(name: str) -> int:
        return int(getattr(judged, name)[chosen].sum())

    def rate(false_alarms_R: NDArray[np.int64], steps_R: NDArray[np.int64]) -> Score:
        return poisson_rate(int(false_alarms_R[chosen].sum()), int(steps_R[chosen].sum()))

    warned, missed, false_alarms = total("warned"), total("missed"), total("false_alarms")
    failed = warned + missed
    leads = judged.lead[chosen & (judged.warned > 0)]
    about: dict[str, Cell] = {
        "level": group.level,
        "name": group.name,
        "detector": detector,
        "runs": int(chosen.sum()),
        "records": int(np.diff(source.timeline.bounds)[chosen].sum()),
        "healthy": total("healthy"),
        "failures": failed,
        "instabilities": total("instabilities"),
    }
    if not total("scored"):
        return about | dict.fromkeys(MEASURED, Score.undefined("the logs have nothing that the detector reads"))
    return about | {
        "false_alarms": false_alarms,
        "false_alarms_per_10000": rate(judged.false_alarms, judged.healthy),
        **{name: rate(*counts) for name, counts in judged.of_age.items()},
        "recall": Score.share(warned, failed, NOBODY_TO_WARN),
        "f1": Score(float(f1(HitCounts(warned, false_alarms, failed)))) if failed else Score.undefined(NOBODY_TO_WARN),
        "lead": Score(float(leads.mean())) if len(leads) else Score.undefined("no run was warned"),
        "seen": Score.share(total("seen"), total("instabilities"), "no instability"),
    }


def alerts_in(file: Path, *more: str) -> pd.DataFrame:
    """A CSV of alerts with columns ``set, run, step`` and ``more``; :class:`UserError` if it is none."""
    try:
        table = pd.read_csv(file, dtype=str)  # pandas would take True for a step
    except ValueError as error:  # also one that is empty, or no text
        raise UserError(f"{file} is no CSV of alerts ({' '.join(str(error).split())})") from error
    *others, last = due = ("set", "run", "step", *more)
    if not {*due} <= {*table.columns}:
        names = f"{', '.join(map(repr, others))} and {last!r}"
        raise UserError(f"{file} has columns {', '.join(map(repr, table.columns))}; {names} are due")
    if not isinstance(table.index, pd.RangeIndex):  # pandas takes the first for labels, and the others move up
        raise UserError(f"{file} has more values in its rows than names in its first line; a comma ends each row?")
    steps = numbers_of(table, "step", file, "a whole number is due, or nothing for no alert")
    nowhere = table["step"][steps.notna() & table[["set", "run"]].isna().any(axis=1)]
    if len(nowhere):
        raise UserError(f"{file} has an alert at step {nowhere.iloc[0]} without a set or a run; name both")
    return table.assign(step=steps)


def numbers_of(table: pd.DataFrame, name: str, file: Path, due: str) -> pd.Series:
    """A column of numbers, NaN where nothing stands; :class:`UserError` for anything else."""
    numbers = pd.to_numeric(table[name], errors="coerce")
    wrong = table[name][numbers.isna() & table[name].notna()]
    if len(wrong):
        raise UserError(f"{file} has a {name} {wrong.iloc[0]!r}; {due}")
    return numbers


def scores_of_alerts(source: RunSet, alerts: pd.DataFrame, name: str | Path) -> NDArray[np.float64]:
    """Scores of alerts as :func:`alerts_in` gives them: above :data:`ALERT_THRESHOLD` where there is one.

    A row without a step is no alert. Raises :class:`UserError`, with their name, for a run or step of this set that
    does not exist.
    """
    of_set = alerts[(alerts["set"] == source.name) & alerts["step"].notna()]
    bounds = source.timeline.bounds
    numbers = {run.name: index for index, run in enumerate(source.study.runs)}
    scores = np.zeros(len(source.timeline.step))
    for run, steps in of_set.groupby("run")["step"]:
        if run not in numbers:
            raise UserError(f"{name} names run {run!r}, which the set {source.name} does not have")
        index = numbers[str(run)]
        known = source.study.runs[index].observations.step
        at = np.searchsorted(known, steps.to_numpy())
        unknown = steps[~np.isin(steps.to_numpy(), known)]
        if len(unknown):
            raise UserError(f"{name} has an alert of run {run!r} at step {unknown.iloc[0]:g}, which is no record of it")
        scores[bounds[index] + at] = ALERTED
    return scores
