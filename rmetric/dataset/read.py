"""Read the runs of a data set, the same as :func:`rmetric.log_reader.read_run` gives for the logs it was made from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rmetric.dataset.layout import FORMAT, FORMAT_KEY, MATRIX, ONCE_COLUMNS, RUN_COLUMNS, SCHEMA, STEP
from rmetric.errors import UserError
from rmetric.log_reader import Chunk, assemble
from rmetric.measurements import MEASUREMENTS
from rmetric.records import Event, Run


@dataclass(frozen=True)
class StoredRun:
    """One run of the file."""

    labels: dict[str, Any]
    """Values of :data:`~rmetric.dataset.layout.RUN_COLUMNS`, by name; ``None`` where the file has none."""
    chunk: Chunk
    """Its records, those it shares with its twin included, and all events but METRICS."""

    @property
    def name(self) -> str:
        """Name of the log."""
        return str(self.labels["run"])

    def run(self) -> Run:
        """The run as it is read from its log, without the results of its own detectors (``verdicts``, ``alerts``)."""
        return assemble(self.name, [self.chunk])


def sets_of(path: str | Path) -> list[str]:
    """Names of the sets, in the order in which the file has them; errors as of :func:`read_stored`."""
    return list(dict.fromkeys(_table(Path(path)).column("set").to_pylist()))


def read_stored(path: str | Path) -> list[StoredRun]:
    """The runs of all sets, in the order in which the file has them.

    Raises
    ------
    UserError
        If the file does not exist, is no data set of this layout, or is damaged.
    """
    file = Path(path)
    table = _table(file)
    try:
        return _runs(table)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, pa.ArrowException) as error:
        raise UserError(f"{file} is damaged: its runs cannot be put together; get it again") from error


def of_set(path: str | Path, part: str = "") -> list[StoredRun]:
    """The runs of one set.

    Parameters
    ----------
    path
        Of the data set.
    part
        One of :data:`rmetric.dataset.layout.SETS`; empty: ``matrix``, or the only set there is.

    Raises
    ------
    UserError
        As :func:`read_stored`, or if the file has no such set.
    """
    stored = read_stored(path)
    known = list(dict.fromkeys(run.labels["set"] for run in stored))
    wanted = part or (MATRIX if MATRIX in known or not known else known[0])
    if wanted not in known:
        raise UserError(f"{path} has no set named {wanted!r}; it has {', '.join(known) or 'no run at all'}")
    return [run for run in stored if run.labels["set"] == wanted]


def read_runs(path: str | Path, part: str = "") -> list[Run]:
    """The runs of one set, as :func:`of_set` chooses them."""
    return [stored.run() for stored in of_set(path, part)]


def _table(file: Path) -> pa.Table:
    if file.is_dir():
        raise UserError(f"{file} is a folder where a .parquet file is due; give the file")
    if not file.exists():
        raise UserError(
            f"{file} does not exist; make it with python -m studies.real_runs.publish, or give --logs FOLDER"
        )
    try:
        with pq.ParquetFile(file, page_checksum_verification=True) as opened:
            schema = opened.schema_arrow
            absent = [name for name in SCHEMA.names if name not in schema.names]
            if (schema.metadata or {}).get(FORMAT_KEY) != FORMAT or not {*absent} <= {*MEASUREMENTS}:
                raise UserError(
                    f"{file} is no data set of this project's layout {FORMAT.decode()}; "
                    "make one with python -m studies.real_runs.publish"
                )
            table = opened.read(columns=[name for name in SCHEMA.names if name not in absent])
            for name in absent:  # a measurement that is younger than the file
                table = table.append_column(name, pa.nulls(len(table), pa.float64()))
            return table.select(SCHEMA.names).cast(SCHEMA)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{file} is damaged or no Parquet file; get it again") from error


def _runs(table: pa.Table) -> list[StoredRun]:
    config_N = table.column("config").combine_chunks()
    first_R = np.flatnonzero(config_N.is_valid().to_numpy(zero_copy_only=False))
    if len(table) and (not len(first_R) or first_R[0] != 0):
        raise ValueError("rows before the first run")
    labels = table.select([*RUN_COLUMNS, *ONCE_COLUMNS]).take(pa.array(first_R)).to_pylist()
    step_N = table.column(STEP).to_numpy()
    values = {name: table.column(name).to_numpy() for name in MEASUREMENTS}

    def own(row: int) -> slice:
        return slice(int(first_R[row]), int(first_R[row + 1]) if row + 1 < len(first_R) else len(table))

    place = {(row["set"], row["run"]): index for index, row in enumerate(labels)}

    def columns(row: int) -> Iterator[tuple[str, NDArray[Any]]]:
        shared = labels[row]["shared_records"] or 0
        before = own(place[labels[row]["set"], labels[row]["twin"]]) if shared else slice(0, 0)
        if before.stop - before.start < shared:
            raise ValueError("a run shares more records than its twin has")
        for name, column in ((STEP, step_N), *values.items()):
            yield name, np.concatenate([column[before][:shared], column[own(row)]])

    return [_stored(labels[row], dict(columns(row))) for row in range(len(labels))]


def _stored(labels: dict[str, Any], columns: dict[str, NDArray[Any]]) -> StoredRun:
    step = columns.pop(STEP).astype(np.int64)
    if (np.diff(step) <= 0).any():
        raise ValueError("steps go back in time")
    config = json.loads(labels.pop("config"))
    events: list[tuple[int, Event]] = [(int(index), event) for index, event in json.loads(labels.pop("events"))]
    for _, event in events:
        if event.get("event") == "EXPERIMENT_START":
            event["config"] = config
    measured = {name: values for name, values in columns.items() if not np.isnan(values).all()}
    return StoredRun(labels, Chunk(step, measured, events, alerts={}))
