"""Scores of every detector on every record of a study, kept in a cache that knows when they are no longer valid."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors import DETECTORS, Detector
from rmetric.evaluation.studies import Study, in_parallel
from rmetric.files import write_atomically
from rmetric.log_writer import SCHEMA_VERSION
from rmetric.records import Observations
from rmetric.registry import load_plugin
from rmetric.versions import content_checksums, foreign_code

SCORING_VERSION = 1
"""Raise it when detectors are shown other records of the same log (:func:`rmetric.detectors.drift.with_drift`)."""
Recipe = tuple[str, dict[str, Any]]
"""Registered name and settings of a detector: what a process needs to make one of a plugin that it has yet to load."""


def score_study(
    study: Study,
    detectors: Mapping[str, Detector],
    *,
    cache: str | Path | None = None,
    jobs: int | None = None,
    plugins: Sequence[str | Path] = (),
) -> dict[str, NDArray[np.float64]]:
    """Scores of all records of all runs by each detector.

    Parameters
    ----------
    study
        The logs.
    detectors
        Name → detector.
    cache
        Folder that keeps one ``.npz`` a detector for the next script. Scores are taken from there when neither the logs
        nor the detector's settings or version have changed since.
    jobs
        Processes; as many as there are cores if left out.
    plugins
        Files that define some of the detectors, so that the processes can load them.

    Returns
    -------
    dict
        Name → shape (records,), the runs one after the other; :func:`by_run` splits it.
    """
    scores: dict[str, NDArray[np.float64]] = {}
    keys = {name: _key(study, detector) for name, detector in detectors.items()}
    files = {name: Path(cache) / f"scores_{name}.npz" for name in detectors} if cache is not None else {}
    for name, file in files.items():
        known = _cached(file, keys[name], sum(len(run.observations) for run in study.runs))
        if known is not None:
            scores[name] = known
    missing = {name: detector for name, detector in detectors.items() if name not in scores}
    if missing:
        recipes = {name: _recipe(detector) for name, detector in missing.items()}
        tasks = [(recipes, run.observations, tuple(map(str, plugins))) for run in study.runs]
        rows = list(in_parallel(_score, tasks, jobs, f"scoring with {len(missing)} detectors", "run"))
        for name in missing:
            scores[name] = np.concatenate([*(row[name] for row in rows), np.empty(0)])
            if name in files:
                _keep(files[name], keys[name], scores[name])
    return {name: scores[name] for name in detectors}


def by_run(study: Study, scores: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Scores of :func:`score_study` as one array a run."""
    return np.split(scores, np.cumsum([len(run.observations) for run in study.runs])[:-1]) if study.runs else []


def _recipe(detector: Detector) -> Recipe:
    return detector.name, {item.name: getattr(detector, item.name) for item in fields(detector) if item.init}


def _score(task: tuple[Mapping[str, Recipe], Observations, tuple[str, ...]]) -> dict[str, NDArray[np.float64]]:
    recipes, observations, plugins = task
    for plugin in plugins:
        load_plugin(plugin)
    return {
        name: DETECTORS[registered](**settings).score_run(observations)
        for name, (registered, settings) in recipes.items()
    }


def _key(study: Study, detector: Detector) -> str:
    """Changes with a log, the detector's settings or fitted files, and the versions of :mod:`rmetric.versions`."""
    kind = type(detector)
    identity = (
        *(SCORING_VERSION, SCHEMA_VERSION, detector.name, detector.version, repr(detector)),
        *(content_checksums(kind.fitted_files), foreign_code(kind), study.checksums),
    )
    return hashlib.sha256(repr(identity).encode()).hexdigest()


def _cached(file: Path, key: str, size: int) -> NDArray[np.float64] | None:
    try:
        with np.load(file, allow_pickle=False) as archive:
            if str(archive["key"]) == key and archive["scores"].shape == (size,):
                return archive["scores"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        pass  # absent or damaged: it is computed anew
    return None


def _keep(file: Path, key: str, scores: NDArray[np.float64]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, key=np.array(key), scores=scores)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, buffer.getvalue())
