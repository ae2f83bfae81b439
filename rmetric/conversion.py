"""Runs written in this project's formats: a log of JSON lines, or a data set."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric.dataset.sources import DATA_SET, index_of, log_in
from rmetric.dataset.stored import StoredRun
from rmetric.dataset.write import as_json, write_stored
from rmetric.errors import UserError
from rmetric.evaluation.truth import truth_of
from rmetric.files import naming, refuse_loss
from rmetric.importers import LoggedPortions
from rmetric.importers.read import OWN_FORMATS
from rmetric.log_reader import Chunk, assemble
from rmetric.log_writer import alerts_so_far, encode_metrics, with_non_finite_named
from rmetric.measurements import MEASUREMENTS, MECHANISM, VERDICTS
from rmetric.records import CONVERTED_FROM, START, Event, Run, is_converted, step_of

LOG = ".jsonl"
ASIDE = ".rmetric-"
"""Beginning of the name of a folder in which logs are written aside."""


def write_converted(
    logs: Iterable[LoggedPortions], out: Path, *, overwrite: bool = False, read: Sequence[str | Path] = ()
) -> list[Path]:
    """Write runs, the lines of a log portion by portion; what was written. Runs without a record are left out.

    Parameters
    ----------
    out
        ``FILE.jsonl`` for a single run; ``FILE.parquet`` for a data set of all runs, with an index as CSV beside it,
        without what the run's own detectors and mechanism monitors had said, put together in memory; else a folder for
        one log a run.
    overwrite
        Replace files that are there.
    read
        Files and folders that the logs are read from; what lies there is not replaced.

    Raises
    ------
    UserError
        If there are several runs for one log, two runs of one name for a folder or data set, or a file is there that
        would be replaced; nothing is written.
    """
    for file in _files_named_by(out):  # before anything is read
        refuse_loss(file, overwrite, read)
    return _write_data_set(logs, out) if _ending(out) == DATA_SET else _write_logs(logs, out, overwrite, read)


def _ending(out: Path) -> str:
    return out.suffix.casefold()


def _files_named_by(out: Path) -> list[Path]:
    """Files that are known before the runs are: a folder takes a log a run."""
    if _ending(out) == DATA_SET:
        return [out, index_of(out)]
    return [out] if _ending(out) == LOG else []


def _write_data_set(logs: Iterable[LoggedPortions], out: Path) -> list[Path]:
    runs: list[StoredRun] = []
    for log in logs:
        run = assemble(log.name, _with_origin(log))
        if len(run.observations):
            _refuse_twice(run.name, [run.name for run in runs])
            runs.append(StoredRun(labels_of(run), chunk_of(run)))
    written = write_stored(runs, out) if runs else None
    return [written.path, written.index] if written else []


def _write_logs(logs: Iterable[LoggedPortions], out: Path, overwrite: bool, read: Sequence[str | Path]) -> list[Path]:
    """Logs are written aside, and take their places when all of them are there."""
    rest = iter(logs)
    first = next(rest, None)
    if first is None:  # and no folder is made
        return []
    names: list[str] = []
    files: list[Path] = []
    folder = out.parent if _ending(out) == LOG else out
    folder.mkdir(parents=True, exist_ok=True)
    with naming(out, folder / ASIDE), TemporaryDirectory(prefix=ASIDE, dir=folder) as aside:
        for log in chain((first,), rest):
            if _write_log(_with_origin(log), Path(aside) / str(len(names))):
                files.append(_file_of(log.name, names, out))
                refuse_loss(files[-1], overwrite, read)
                names.append(log.name)
        for number, file in enumerate(files):
            file.parent.mkdir(parents=True, exist_ok=True)
            os.replace(Path(aside) / str(number), file)
    return files


def _file_of(name: str, others: Sequence[str], out: Path) -> Path:
    """File of a run; ``others``: names of the runs before it."""
    if _ending(out) == LOG:
        if others:
            raise UserError(f"{out} takes one run, and there are more; give a folder or FILE.parquet as --out")
        return out
    _refuse_twice(name, others)
    return log_in(out, name, "give FILE.jsonl or FILE.parquet as --out")


def _refuse_twice(name: str, names: Sequence[str]) -> None:
    if name in names:
        raise UserError(f"two runs are named {name!r}; rename one of the logs, or give each a --out of its own")


def _write_log(portions: Iterable[Chunk], file: Path) -> bool:
    """Write the log of a run; false if it holds no record."""
    records = 0
    with open(file, "wb") as log:
        for portion in portions:
            log.write(log_lines(portion))
            records += len(portion.step)
    return records > 0


def _with_origin(log: LoggedPortions) -> Iterator[Chunk]:
    """The portions of a log; before those of another program's stands which format that was."""
    if log.format not in OWN_FORMATS:
        start: Event = {"event": START, "config": {CONVERTED_FROM: log.format}}
        yield Chunk(np.empty(0, dtype=np.int64), {}, [(0, start)], alerts=None)
    yield from log.portions


def log_lines(portion: Chunk) -> bytes:
    """Lines of a log from which :func:`rmetric.read_run` makes the same records and events.

    Numbers of records keep all their digits.
    """
    floats = {name: portion.columns[name] for name in (*MEASUREMENTS, *VERDICTS) if name in portion.columns}
    mechanism = {name: portion.columns[name] for name in MECHANISM if name in portion.columns}
    states: dict[str, Sequence[Any]] = {}
    if mechanism:
        states["mechanism"] = [_at(mechanism, row) for row in range(len(portion.step))]
    if portion.alerts is not None:
        states["alerts"] = alerts_so_far(portion.step, portion.alerts)
    return encode_metrics(portion.step, floats, states, portion.events)


def _at(columns: Mapping[str, NDArray[np.float64]], row: int) -> dict[str, Any]:
    measured = {name: float(column[row]) for name, column in columns.items() if not np.isnan(column[row])}
    return with_non_finite_named(measured)


def chunk_of(run: Run) -> Chunk:
    """The records of a run as its log has them, and its events where their steps belong."""
    seen = run.observations
    columns = {**{name: seen.stated(name) for name in seen.columns}, **run.verdicts}
    start: Event = {"event": START, "config": run.config}
    places = np.maximum.accumulate([_place(run, event) for event in run.events]).tolist() if run.events else []
    return Chunk(seen.step, columns, [(0, start), *zip(places, run.events, strict=True)], alerts=run.alerts or None)


def _place(run: Run, event: Event) -> int:
    """Index of the record that an event stands before; the last line of a log follows all records."""
    if event is run.terminal:
        return len(run.observations)
    step = step_of(event)
    return 0 if step is None else int(np.searchsorted(run.observations.step, step))


def labels_of(run: Run) -> dict[str, Any]:
    """Labels of a run but for ``set`` and ``shared_records``, from its log; that of another program states no truth."""
    truth, twin = truth_of(run), run.config.get("twin")
    unknown = is_converted(run.config)
    return {
        "run": run.name.encode("utf-8", "replace").decode(),  # of a file whose name is no UTF-8
        "model": run.model_type,
        "optimizer": _text(run.config.get("optimizer")),
        "seed": _whole(run.config.get("seed")),
        "repetition": _whole(run.config.get("repetition")),
        "fault": None if unknown else run.fault,
        "severity": None if unknown else run.severity,
        "parameters": _json(run.injection.get("params")),
        "disturbance": _json(run.config.get("disturbance")),
        "onset": truth.onset,
        "outcome": None if unknown else truth.kind,
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
