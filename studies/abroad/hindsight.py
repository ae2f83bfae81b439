"""Refusal of detectors that see the future, or other runs: how a log ends tells whether its run failed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors import DETECTORS, Detector, make_detector
from rmetric.engines.local import LocalEngine
from rmetric.errors import UserError
from rmetric.evaluation.scoring import Scores, by_run, score_study
from rmetric.evaluation.studies import Study
from rmetric.records import Run
from rmetric.registry import load_plugins
from studies.abroad.sources import RunSet

Array = NDArray[np.float64]
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


@contextmanager
def another_process() -> Iterator[LocalEngine]:
    """A process that has scored nothing. An error leaves it idle, so that it is ended as ever, and not killed."""
    engine = LocalEngine(2)  # of one job, it would be this process
    try:
        yield engine
    finally:
        engine.__exit__(None, None, None)


def refuse_found(
    source: RunSet, detectors: Mapping[str, Detector], plugins: Sequence[Path], beside: LocalEngine
) -> None:
    """:class:`UserError` for a detector whose scores of the first records of a run depend on anything else.

    Tried on evenly spaced runs of the set, :data:`TRIED` of those that failed and of the others: each cut, and again,
    and all in reverse order in another process, where what a class keeps of the first run comes from another one; a
    detector that only the calling script has registered is not tried there.

    Parameters
    ----------
    detectors
        Registered name → detector with its published settings.
    plugins
        Files that define some of them.
    beside
        Of :func:`another_process`.
    """
    tried = [*_tried(source)]
    whole = [_scores_of_whole(source, run, detectors) for run in tried]
    study = replace(source.study, runs=tried[::-1])
    (scores,) = beside.map(partial(_scores, names=[*detectors], plugins=plugins), [study])
    for name, kept in scores.items():
        for run, before, after in zip(tried, whole, by_run(study, kept)[::-1], strict=True):
            _refuse_other_scores(source, run, detectors[name], before[name], after)


def _scores(study: Study, names: Sequence[str], plugins: Sequence[Path]) -> dict[str, Scores]:
    """Scores by those detectors that this process can load: a script may have registered others in its own alone."""
    load_plugins(plugins)
    return score_study(study, {name: make_detector(name) for name in names if name in DETECTORS}, jobs=1)


def _scores_of_whole(source: RunSet, run: Run, detectors: Mapping[str, Detector]) -> dict[str, Array]:
    """Scores of a run by each detector; :class:`UserError` if they are others again, or change with later records."""
    study = replace(source.study, runs=[run, *_cut(run), run])
    scores = {name: by_run(study, kept) for name, kept in score_study(study, detectors, jobs=1).items()}
    for name, (whole, *parts, again) in scores.items():
        _refuse_other_scores(source, run, detectors[name], whole, again)
        for part in parts:
            for at in _changed(detectors[name], whole[: len(part)], part)[:1]:
                step = run.observations.step
                raise UserError(
                    f"{name} scores a record with later ones in view: in run {run.name} of {source.name}, step "
                    f"{step[at]}, {whole[at]:g} with all records and {part[at]:g} without those from step "
                    f"{step[len(part)]} on; here a detector sees those up to it"
                )
    return {name: whole for name, (whole, *_) in scores.items()}


def _refuse_other_scores(source: RunSet, run: Run, detector: Detector, before: Array, after: Array) -> None:
    for at in _changed(detector, before, after)[:1]:
        raise UserError(
            f"{detector.name} gives other scores for the same records: in run {run.name} of {source.name}, step "
            f"{run.observations.step[at]}, {before[at]:g} and then {after[at]:g}; it keeps state between runs, or "
            "draws random numbers"
        )


def _changed(detector: Detector, before: Array, after: Array) -> NDArray[np.intp]:
    """Records whose scores differ by more than rounding."""
    rounding = ROUNDING * abs(detector.threshold) if math.isfinite(detector.threshold) else 0.0
    return np.flatnonzero(~np.isclose(after, before, ROUNDING, rounding, equal_nan=True))


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
