"""Read the runs of a data set, the same as :func:`rmetric.log_reader.read_log` gives for the logs it was made from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rmetric.dataset.layout import EXACT_KEY, FORMAT, FORMAT_KEY, ONCE_COLUMNS, RUN_COLUMNS, SCHEMA, STEP
from rmetric.dataset.precision import widened
from rmetric.dataset.stored import StoredRun
from rmetric.errors import UserError
from rmetric.log_reader import Chunk
from rmetric.measurements import MEASUREMENTS
from rmetric.records import START, Event, Run

PLACE = ("run", "twin", "shared_records")
"""Columns that say, with ``config``, which rows a run consists of."""


def read_stored(path: str | Path) -> list[StoredRun]:
    """The runs of a data set, in the order in which the file has them.

    Raises
    ------
    UserError
        If the file does not exist, is no data set of this layout, or is damaged.
    """
    file = Path(path)
    table = _table(file)
    with _damage(file):
        return _runs(table)


def read_runs(path: str | Path) -> list[Run]:
    """The runs, as :func:`read_stored` finds them."""
    return [stored.run() for stored in read_stored(path)]


def read_labels(path: str | Path) -> pa.Table:
    """One row a run: ``run``, ``config``, ``events`` and ``records``, the number of its records. Errors as above."""
    file = Path(path)
    table = _table(file, [*PLACE, *ONCE_COLUMNS])
    with _damage(file):
        rows = Rows.of(table)
        labels = table.select(["run", *ONCE_COLUMNS]).take(pa.array(rows.first))
        return labels.append_column("records", pa.array([rows.records(row) for row in range(len(rows))]))


def read_steps(path: str | Path) -> list[NDArray[np.int64]]:
    """Steps of each run's records. Errors as above."""
    file = Path(path)
    table = _table(file, [*PLACE, "config", STEP])
    with _damage(file):
        rows = Rows.of(table)
        step_N = table.column(STEP).to_numpy()
        return [_increasing(rows.values(row, step_N)) for row in range(len(rows))]


@contextmanager
def _damage(file: Path) -> Iterator[None]:
    try:
        yield
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, pa.ArrowException) as error:
        raise UserError(f"{file} is damaged: its runs cannot be put together; get it again") from error


def _table(file: Path, columns: Sequence[str] = SCHEMA.names) -> pa.Table:
    if file.is_dir():
        raise UserError(f"{file} is a folder where a .parquet file is due; give the file")
    if not file.exists():
        raise UserError(f"{file} does not exist; name a data set, or make one with python -m studies.real_runs.publish")
    try:
        with pq.ParquetFile(file, page_checksum_verification=True) as opened:
            schema = opened.schema_arrow
            absent = [name for name in SCHEMA.names if name not in schema.names]
            if (schema.metadata or {}).get(FORMAT_KEY) != FORMAT or not {*absent} <= {*MEASUREMENTS}:
                raise UserError(
                    f"{file} is no data set of this project's layout {FORMAT.decode()}; "
                    "make one with python -m studies.real_runs.publish"
                )
            table = opened.read(columns=[name for name in columns if name not in absent])
            for name in {*absent} & {*columns}:  # a measurement that is younger than the file
                table = table.append_column(name, pa.nulls(len(table), pa.float32()))
            chosen = table.select(list(columns))
            return chosen.cast(_types_of(chosen))
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{file} is damaged or no Parquet file; get it again") from error


def _types_of(table: pa.Table) -> pa.Schema:
    """The schema of a data set, with doubles where this one has them in a measurement."""
    doubles = {
        name for name in MEASUREMENTS if name in table.column_names and table.schema.field(name).type == pa.float64()
    }
    known = [SCHEMA.field(name) for name in table.column_names]
    types = [field.with_type(pa.float64()) if field.name in doubles else field for field in known]
    return pa.schema(types, table.schema.metadata)


@dataclass(frozen=True)
class Rows:
    """The rows of a file that make up each of its runs."""

    first: NDArray[np.int64]
    """First row of each run's own, shape (runs,)."""
    end: NDArray[np.int64]
    """Row behind its own, shape (runs,)."""
    twin: NDArray[np.int64]
    """Run whose first records come before them, shape (runs,)."""
    shared: NDArray[np.int64]
    """How many of the twin's, shape (runs,)."""

    @classmethod
    def of(cls, table: pa.Table) -> Rows:
        """Rows of a table with ``config`` and :data:`PLACE`; raises ``ValueError`` or ``KeyError`` if damaged."""
        config_N = table.column("config").combine_chunks()
        first_R = np.flatnonzero(config_N.is_valid().to_numpy(zero_copy_only=False))
        if len(table) and (not len(first_R) or first_R[0] != 0):
            raise ValueError("rows before the first run")
        end_R = np.append(first_R[1:], len(table)) if len(first_R) else first_R
        labels = table.select(PLACE).take(pa.array(first_R)).to_pylist()
        place = {row["run"]: index for index, row in enumerate(labels)}
        shared_R = np.array([row["shared_records"] or 0 for row in labels], dtype=np.int64)
        twin_R = np.array([place[row["twin"]] if row["shared_records"] else 0 for row in labels], dtype=np.int64)
        if (shared_R > (end_R - first_R)[twin_R]).any():
            raise ValueError("a run shares more records than its twin has")
        return cls(first_R, end_R, twin_R, shared_R)

    def __len__(self) -> int:
        return len(self.first)

    def records(self, run: int) -> int:
        """Number of the records of a run."""
        return int(self.shared[run] + self.end[run] - self.first[run])

    def values(self, run: int, column_N: NDArray[Any]) -> NDArray[Any]:
        """A column's values in the records of a run."""
        before = self.first[self.twin[run]]
        return np.concatenate([column_N[before : before + self.shared[run]], column_N[self.first[run] : self.end[run]]])


def _runs(table: pa.Table) -> list[StoredRun]:
    rows = Rows.of(table)
    labels = table.select([*RUN_COLUMNS, *ONCE_COLUMNS]).take(pa.array(rows.first)).to_pylist()
    exact = json.loads((table.schema.metadata or {}).get(EXACT_KEY, b"{}"))
    values = {
        name: widened(table.column(name).to_numpy(), {int(row): value for row, value in exact.get(name, {}).items()})
        for name in MEASUREMENTS
    }
    columns = {STEP: table.column(STEP).to_numpy(), **values}
    return [
        _stored(labels[run], {name: rows.values(run, column) for name, column in columns.items()})
        for run in range(len(rows))
    ]


def _stored(labels: dict[str, Any], columns: dict[str, NDArray[Any]]) -> StoredRun:
    step = _increasing(columns.pop(STEP).astype(np.int64))
    events = said(labels.pop("config"), labels.pop("events"))
    measured = {name: values for name, values in columns.items() if not np.isnan(values).all()}
    return StoredRun(labels, Chunk(step, measured, events, alerts=None))


def said(config: str, events: str) -> list[tuple[int, Event]]:
    """The events of a run with the record that each stands before, out of its columns ``config`` and ``events``."""
    start = orjson.loads(config)
    found: list[tuple[int, Event]] = [(int(index), event) for index, event in orjson.loads(events)]
    for _, event in found:
        if event.get("event") == START:
            event["config"] = start
    return found


def _increasing(step: NDArray[np.int64]) -> NDArray[np.int64]:
    if (np.diff(step) <= 0).any():
        raise ValueError("steps go back in time")
    return step
