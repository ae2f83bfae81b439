"""Scores of every detector on every record of a study, kept in a cache that knows when they are no longer valid."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rmetric.detectors import Detector, make_detector
from rmetric.errors import UserError
from rmetric.evaluation.studies import Study, in_parallel
from rmetric.files import written_aside
from rmetric.log_writer import SCHEMA_VERSION
from rmetric.records import Observations
from rmetric.registry import load_plugins, plugin_errors
from rmetric.versions import can_be_kept, fitted_checksums, foreign_code

SCORING_VERSION = 1
"""Raise it when detectors are shown other records of the same log (:func:`rmetric.detectors.drift.with_drift`)."""
KEY_DIGITS = 16
Recipe = tuple[str, dict[str, Any]]
"""Registered name and settings of a detector: what a process needs to make one of a plugin that it has yet to load."""


@dataclass(frozen=True)
class KeptScores:
    """Scores of all records in a file. A slice is read when it is asked for; numpy takes all of it for an array."""

    file: Path

    def __len__(self) -> int:
        return len(self._opened())

    def __getitem__(self, rows: slice) -> NDArray[np.float64]:
        return np.array(self._opened()[rows])  # copied, so that the file is let go of

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[np.float64]:
        return np.asarray(self[:], dtype)

    def _opened(self) -> NDArray[np.float64]:
        scores: NDArray[np.float64] = np.load(self.file, mmap_mode="r", allow_pickle=False)
        return scores


Scores = KeptScores | NDArray[np.float64]


def score_study(
    study: Study,
    detectors: Mapping[str, Detector],
    *,
    cache: str | Path | None = None,
    jobs: int | None,
    plugins: Sequence[str | Path] = (),
) -> dict[str, Scores]:
    """Scores of all records of all runs by each detector.

    Parameters
    ----------
    cache
        Folder that keeps one ``.npy`` a detector for the next script. Scores are taken from there when neither the logs
        nor the detector's settings or version have changed since; those of a detector from outside this package only if
        it declares :attr:`~rmetric.detectors.Detector.fitted_files`. Without it they are held in memory.
    jobs
        Processes; ``None``: as many as there are cores.
    plugins
        Files that define some of the detectors, so that the processes can load them.

    Returns
    -------
    dict
        Name → shape (records,), the runs one after the other; :func:`by_run` splits it.
    """
    if cache is None:
        rows = list(_scored(study, detectors, jobs, plugins))
        return {name: np.concatenate([*(row[name] for row in rows), np.empty(0)]) for name in detectors}
    files = {name: Path(cache) / f"scores_{name}_{_key(study, each)}.npy" for name, each in detectors.items()}
    records = sum(len(run.observations) for run in study.runs)
    missing = {
        name: detector
        for name, detector in detectors.items()
        if not (can_be_kept(type(detector)) and _whole(files[name], records))
    }
    if missing:
        Path(cache).mkdir(parents=True, exist_ok=True)
        _write({name: files[name] for name in missing}, records, _scored(study, missing, jobs, plugins))
    for name in missing:
        _remove_outdated(name, files[name])
    return {name: KeptScores(file) for name, file in files.items()}


def _write(files: Mapping[str, Path], records: int, rows: Iterable[Mapping[str, NDArray[np.float64]]]) -> None:
    """Write the scores of run after run, so that those of one run alone are in memory."""
    header = {"descr": "<f8", "fortran_order": False, "shape": (records,)}
    with ExitStack() as opened:
        written = {name: opened.enter_context(written_aside(file, synced=False)) for name, file in files.items()}
        for file in written.values():
            np.lib.format.write_array_header_1_0(file, header)
        for row in rows:
            for name, scores in row.items():
                written[name].write(scores.astype("<f8").tobytes())


def _remove_outdated(name: str, file: Path) -> None:
    """Remove what the cache holds of a detector's earlier versions, or of other logs."""
    for outdated in file.parent.glob(f"scores_{name}_{'[0-9a-f]' * KEY_DIGITS}.npy"):
        if outdated != file:
            outdated.unlink()


def _whole(file: Path, records: int) -> bool:
    try:
        return len(KeptScores(file)) == records
    except (OSError, ValueError, EOFError, TypeError):
        return False  # absent or damaged: it is computed anew


def by_run(study: Study, scores: Scores) -> list[NDArray[np.float64]]:
    """Scores of :func:`score_study` as one array a run."""
    if not len(study.runs):
        return []
    return np.split(np.asarray(scores), np.cumsum([len(run.observations) for run in study.runs])[:-1])


def _scored(
    study: Study, detectors: Mapping[str, Detector], jobs: int | None, plugins: Sequence[str | Path]
) -> Iterator[dict[str, NDArray[np.float64]]]:
    recipes = {name: _recipe(detector) for name, detector in detectors.items()}
    tasks = [(recipes, run.name, run.observations, tuple(map(str, plugins))) for run in study.runs]
    return in_parallel(_score, tasks, jobs, f"scoring with {len(recipes)} detectors", "run")


def _recipe(detector: Detector) -> Recipe:
    return detector.name, {item.name: getattr(detector, item.name) for item in fields(detector) if item.init}


def _score(task: tuple[Mapping[str, Recipe], str, Observations, tuple[str, ...]]) -> dict[str, NDArray[np.float64]]:
    recipes, run, observations, plugins = task
    load_plugins(plugins)
    shown = _read_only(observations)
    with plugin_errors(run):
        scores = {
            name: make_detector(registered, **settings).score_run(shown)
            for name, (registered, settings) in recipes.items()
        }
    return {name: _numbers(name, found, run, len(observations)) for name, found in scores.items()}


def _read_only(observations: Observations) -> Observations:
    """Views of the same records: a detector that wrote into them would change what the others are shown."""
    views = observations.rows(slice(None))
    for column in (views.step, views.evaluated, *views.columns.values()):
        column.flags.writeable = False
    views.columns = MappingProxyType(views.columns)  # type: ignore[assignment]
    return views


def _numbers(name: str, scores: Any, run: str, records: int) -> NDArray[np.float64]:
    """Scores of a run by a detector that may be somebody's own, NaN where they are masked.

    Raises :class:`UserError` if they cannot be any.
    """
    try:
        found = np.asanyarray(scores)
    except ValueError as error:
        raise UserError(f"detector {name} gives scores for run {run} that are no array ({error})") from error
    if found.shape != (records,):
        raise UserError(
            f"detector {name} gives scores of shape {found.shape} for the {records} records of run {run}; one a "
            "record is due"
        )
    if found.dtype.kind not in "fiub":
        raise UserError(f"detector {name} gives scores of type {found.dtype} for run {run}; numbers are due")
    return np.asarray(np.ma.filled(found.astype(np.float64, copy=False), np.nan))


def _key(study: Study, detector: Detector) -> str:
    """Changes with a log, the detector's settings or fitted files, and the versions of :mod:`rmetric.versions`."""
    kind = type(detector)
    identity = (
        *(SCORING_VERSION, SCHEMA_VERSION, detector.name, detector.version, repr(detector)),
        *(fitted_checksums(kind), foreign_code(kind), study.checksums),
    )
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:KEY_DIGITS]
