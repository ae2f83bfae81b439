"""What is wrong with a run, and in which of its records: faults by their onset, strangers' runs by their labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from rmetric.evaluation.truth import truth_of
from rmetric.records import Run
from studies import DATA
from studies.abroad import sources
from studies.abroad.labels import AFTERMATH, AHEAD, TOLERANCE, Label
from studies.abroad.sources import RunSet
from studies.states.population import NOT_HEALTHY

SETS = [DATA / f"{name}.parquet" for name in ("real_runs", "real_runs_fresh", "zoo", "bugs")]
"""Data sets that findings are scored on."""
WHOLE = 2**31
"""Beyond the last record of any run."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a run."""

    name: str
    """Fault or bug, or what a label says."""
    outcome: str
    """``failed`` or ``recovered``; of strangers ``failure``, ``instability`` or ``by eye``."""
    begin: int
    """First record in which a finding about it may begin."""
    end: int = WHOLE
    """Last record of it."""
    kinds: tuple[str, ...] = ()
    """Kinds of findings that can be about it; none: all."""


@dataclass(frozen=True)
class Labelled:
    """A run with its labels: every defect that is known of it."""

    set: str
    run: Run
    problems: tuple[Problem, ...] = field(default_factory=tuple)
    disturbed: int | None = None
    """Record from which on a benign disturbance may explain a finding, which is then neither right nor wrong."""

    @property
    def healthy(self) -> bool:
        """True if nothing is wrong with it, and nothing disturbed it."""
        return not self.problems and self.disturbed is None


def all_runs(data: Sequence[Path], strangers: Sequence[str], folder: Path | None) -> Iterator[Labelled]:
    """All runs of data sets, and of those sources of strangers that are there."""
    for place in data:
        yield from of_set(place)
    for name in strangers:
        published = DATA / f"{name}.parquet"
        if published.is_file():
            yield from of_strangers(published, name)
        elif folder is not None:
            yield from of_strangers(folder, name)


def of_set(place: Path) -> Iterator[Labelled]:
    """Runs of a data set of this project: of the one that was fitted to, the score half; censored ones are left out."""
    found = sources.own(place)
    for run, chosen in zip(found.study.runs, found.groups[0].runs, strict=True):
        truth = truth_of(run)
        if not chosen or not truth.counted:
            continue
        disturbed = None if run.disturbed_at is None else _record(run, run.disturbed_at)
        if not run.is_control:
            onset = _record(run, run.onset or 0)
            yield Labelled(place.stem, run, (Problem(run.fault, truth.kind, onset),))
        elif truth.kind == "failed":
            yield Labelled(place.stem, run, (Problem("fails by itself", "failed", 0),))
        else:
            yield Labelled(place.stem, run, disturbed=disturbed)


def of_strangers(place: Path, name: str) -> Iterator[Labelled]:
    """Runs of one source of strangers, by the labels of :mod:`studies.abroad.labels` and the states seen by eye."""
    found: RunSet = sources.strangers(place, name)
    for run, label in zip(found.study.runs, found.labels, strict=True):
        states = [Problem(state, "by eye", 0, kinds=(state,)) for state in _by_eye().get(run.name, ())]
        yield Labelled(name, run, (*_excursions(label), *states))


def _excursions(label: Label) -> Iterator[Problem]:
    for item in label.excursions:
        if item.verdict == "failure":
            yield Problem("failure", "failure", max(item.begin - AHEAD, 0))
        else:
            yield Problem("instability", "instability", item.rise - TOLERANCE, item.end + AFTERMATH)


@cache
def _by_eye() -> dict[str, tuple[str, ...]]:
    table = pd.read_csv(NOT_HEALTHY)
    return {str(run): tuple(rows["state"]) for run, rows in table.groupby("run")}


def _record(run: Run, step: int) -> int:
    return int(np.searchsorted(run.observations.step, step))
