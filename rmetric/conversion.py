"""Runs written in this project's formats: a log of JSON lines, or a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric.dataset.sources import DATA_SET
from rmetric.dataset.stored import StoredRun
from rmetric.dataset.write import as_json, write_stored
from rmetric.errors import UserError
from rmetric.evaluation.ground_truth import truth_of
from rmetric.files import write_atomically
from rmetric.log_reader import Chunk
from rmetric.log_writer import encode_metrics, with_events
from rmetric.measurements import MEASUREMENTS, MECHANISM, VERDICTS
from rmetric.records import Event, Run, step_of

LOG = ".jsonl"


def write_converted(runs: Sequence[Run], out: Path) -> list[Path]:
    """Write runs; what was written.

    Parameters
    ----------
    out
        ``FILE.jsonl`` for a single run; ``FILE.parquet`` for a data set of all runs, with an index as CSV beside it,
        without what the run's own detectors and mechanism monitors had said; else a folder for one log a run.

    Raises
    ------
    UserError
        If there are several runs for one log, or two runs of one name for a folder or data set.
    """
    names = [run.name for run in runs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None and out.suffix != LOG:
        raise UserError(f"two runs are named {twice!r}; convert them one by one")
    if out.suffix == DATA_SET:
        written = write_stored([StoredRun(labels_of(run), chunk_of(run)) for run in runs], out)
        return [written.path, written.index]
    if out.suffix == LOG:
        if len(runs) != 1:
            raise UserError(f"{out} takes one run, not {len(runs)}; give a folder or FILE.parquet as --out")
        files = {out: runs[0]}
    else:
        files = {out / f"{run.name}{LOG}": run for run in runs}
    for file, run in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, b"".join(log_lines(run)))
    return list(files)


def log_lines(run: Run) -> list[bytes]:
    """Lines of a log from which :func:`rmetric.read_run` makes the same run.

    Numbers of records keep all their digits.
    """
    chunk = chunk_of(run)
    floats = {name: chunk.columns[name] for name in (*MEASUREMENTS, *VERDICTS) if name in chunk.columns}
    mechanism = {name: chunk.columns[name] for name in MECHANISM if name in chunk.columns}
    states: dict[str, Sequence[Any]] = {}
    if mechanism:
        states["mechanism"] = [_at(mechanism, row) for row in range(len(chunk.step))]
    if run.alerts:
        states["alerts"] = [_raised(run.alerts, step) for step in chunk.step.tolist()]
    return with_events(encode_metrics(chunk.step, floats, states), chunk.events)


def _at(columns: Mapping[str, NDArray[np.float64]], row: int) -> dict[str, Any]:
    values = {name: float(column[row]) for name, column in columns.items() if not np.isnan(column[row])}
    finite = {name: value for name, value in values.items() if np.isfinite(value)}
    return finite | (
        {"non_finite": [name for name in values if name not in finite]} if len(finite) < len(values) else {}
    )


def _raised(alerts: Mapping[str, int], step: int) -> dict[str, int]:
    return {name: first for name, first in alerts.items() if first <= step}


def chunk_of(run: Run) -> Chunk:
    """The records of a run as its log has them, and its events where their steps belong."""
    seen = run.observations
    columns = {**seen.columns, **run.verdicts}
    if "validation_loss" in columns and seen.evaluated is not None:
        columns["validation_loss"] = np.where(seen.evaluated, columns["validation_loss"], np.nan)
    start: Event = {"event": "EXPERIMENT_START", "config": run.config}
    places = np.maximum.accumulate([_place(run, event) for event in run.events]).tolist() if run.events else []
    return Chunk(seen.step, columns, [(0, start), *zip(places, run.events, strict=True)], alerts=run.alerts)


def _place(run: Run, event: Event) -> int:
    """Index of the record that an event stands before; the last line of a log follows all records."""
    if event is run.terminal:
        return len(run.observations)
    step = step_of(event)
    return 0 if step is None else int(np.searchsorted(run.observations.step, step))


def labels_of(run: Run) -> dict[str, Any]:
    """Labels of a run but for ``set`` and ``shared_records``, from its log."""
    truth, injection, twin = truth_of(run), run.config.get("fault_injection"), run.config.get("twin")
    injection = injection if isinstance(injection, dict) else {}
    return {
        "run": run.name,
        "model": run.model_type,
        "optimizer": _text(run.config.get("optimizer")),
        "seed": _whole(run.config.get("seed")),
        "repetition": _whole(run.config.get("repetition")),
        "fault": run.fault,
        "severity": run.severity,
        "parameters": _json(injection.get("params")),
        "disturbance": _json(run.config.get("disturbance")),
        "onset": truth.onset,
        "outcome": truth.kind,
        "failure_step": truth.failure_step,
        "reason": truth.reason,
        "steps": truth.horizon,
        "twin": twin if isinstance(twin, str) and twin != run.name else None,
    }


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return value if fits else None


def _json(value: Any) -> str | None:
    return None if value is None else as_json(value)
