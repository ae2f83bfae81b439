"""Refusal of detectors that see the future: how long a log is, and how it ends, tells whether its run failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from rmetric.detectors import Detector
from rmetric.errors import UserError
from rmetric.evaluation.scoring import by_run, score_study
from rmetric.records import Run
from studies.abroad.sources import RunSet

TRIED = 4
"""Failed runs of a set that are cut, and as many others."""
QUARTERS = (1, 2, 3)
"""Quarters of a run after which it is cut; it is cut before its last record as well."""
ROUNDING = 1e-6
"""Share of a score, or of the threshold, that is no change: a sum over a longer array may be rounded otherwise."""


def refuse_declared(detectors: Mapping[str, Detector]) -> None:
    """:class:`UserError` for a detector that says that it sees a whole run."""
    for name, detector in detectors.items():
        if not detector.causal:
            raise UserError(f"{name} judges a record with later ones in view; here a detector sees those up to it")


def refuse_found(source: RunSet, detectors: Mapping[str, Detector]) -> None:
    """:class:`UserError` for a detector whose scores of the first records of a run change with the later ones.

    Tried on evenly spaced runs of the set, :data:`TRIED` of those that failed and of the others.
    """
    for run in _tried(source):
        study = replace(source.study, runs=[run, *_cut(run)])
        for name, kept in score_study(study, detectors, jobs=1).items():
            whole, *parts = by_run(study, kept)
            for part in parts:
                before, rounding = whole[: len(part)], ROUNDING * abs(detectors[name].threshold)
                changed = np.flatnonzero(~np.isclose(part, before, ROUNDING, rounding, equal_nan=True))
                if len(changed):
                    at, step = changed[0], run.observations.step
                    raise UserError(
                        f"{name} scores a record with later ones in view: in run {run.name} of {source.name}, step "
                        f"{step[at]}, {before[at]:g} with all records and {part[at]:g} without those from step "
                        f"{step[len(part)]} on; here a detector sees those up to it"
                    )


def _tried(source: RunSet) -> Iterator[Run]:
    failed = source.timeline.warnable
    for group in (np.flatnonzero(failed), np.flatnonzero(~failed)):
        for place in sorted({*np.linspace(0, len(group) - 1, TRIED).astype(int)} if len(group) else ()):
            yield source.study.runs[group[place]]


def _cut(run: Run) -> Iterator[Run]:
    """The first records of a run, as runs of their own."""
    records = len(run.observations)
    for cut in sorted({*(records * quarter // 4 for quarter in QUARTERS), records - 1}):
        if cut > 0:
            yield replace(run, name=f"{run.name}, first {cut} records", observations=run.observations.rows(slice(cut)))
