"""Write runs into a data set: the same runs give the same bytes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rmetric.dataset.layout import EXACT_KEY, ONCE_COLUMNS, RUN_COLUMNS, SCHEMA, STEP
from rmetric.dataset.precision import Exceptions, narrowed
from rmetric.dataset.sources import index_of
from rmetric.dataset.stored import StoredRun
from rmetric.errors import UserError
from rmetric.files import write_atomically
from rmetric.log_writer import strict_json
from rmetric.measurements import MEASUREMENTS
from rmetric.records import START

DICTIONARY = (*RUN_COLUMNS, "learning_rate", "non_finite_count", "hardware_events", "event_worker")
"""Columns with few distinct values."""
ZSTD_LEVEL = 19
"""Level of what is published; 9 takes a fifth of the time and 4 % more bytes."""


@dataclass(frozen=True)
class Written:
    """Summary of what was written."""

    path: Path
    index: Path
    """The run-level rows as a CSV file, for people."""
    runs: int
    records: int
    """Records of all runs."""
    rows: int
    """Stored: without the records that runs share with their twins."""
    size_bytes: int
    whole: list[str] = field(default_factory=list)
    """Runs that name a twin and share nothing with it as stored: it is missing, or its records differ."""
    empty: list[str] = field(default_factory=list)
    """Runs without a record, left out."""


def write_stored(runs: Sequence[StoredRun], out: str | Path) -> Written:
    """Write a data set and its index.

    Parameters
    ----------
    runs
        In the order that the file is to have.
    out
        File to write, ending in ``.parquet``; the index lies beside it, ``_index.csv`` in place of the ending.

    Raises
    ------
    UserError
        If no run holds a record.
    """
    path = Path(out)
    kept = [run for run in runs if len(run.chunk.step)]
    if not kept:
        raise UserError(f"no run holds a record; there is nothing to write to {path}")
    table, shared, labels = _tabled(kept, path.stem)
    content = _parquet(table)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    index = index_of(path)
    write_atomically(index, _index(kept, labels))
    return Written(
        path=path,
        index=index,
        runs=len(kept),
        records=sum(len(run.chunk.step) for run in kept),
        rows=table.num_rows,
        size_bytes=len(content),
        whole=[run.name for run, count in zip(kept, shared, strict=True) if run.labels["twin"] and not count],
        empty=[run.name for run in runs if not len(run.chunk.step)],
    )


def encoded(runs: Sequence[StoredRun], name: str, level: int = ZSTD_LEVEL) -> bytes:
    """A data set of this name with all of these runs; :class:`UserError` if one holds no record."""
    for run in runs:
        if not len(run.chunk.step):
            raise UserError(f"{run.name} ended before its first record, so that no row can hold it; use JSON lines")
    return _parquet(_tabled(runs, name)[0], level)


def _tabled(runs: Sequence[StoredRun], name: str) -> tuple[pa.Table, list[int], list[dict[str, Any]]]:
    """The table of a set, and of each run its records shared with the twin and its labels."""
    by_name = {run.name: run for run in runs}
    shared = [_shared_records(run, by_name) for run in runs]
    own = {"set": name}
    labels = [{**run.labels, **own, "shared_records": count} for run, count in zip(runs, shared, strict=True)]
    return _table(runs, shared, labels), shared, labels


def _shared_records(run: StoredRun, by_name: Mapping[str, StoredRun]) -> int:
    """Number of records before the first disturbed step, if the twin has the very same ones; 0: stored in full.

    A run keeps at least one record of its own, and a twin that is itself stored in part is nobody's twin.
    """
    twin, forked_at = by_name.get(run.labels["twin"]), _forked_at(run)
    if twin is None or twin.labels["twin"] or forked_at is None:
        return 0
    count = min(int(np.searchsorted(run.chunk.step, forked_at)), len(run.chunk.step) - 1)
    same = np.array_equal(run.chunk.step[:count], twin.chunk.step[:count]) and all(
        _same_bits(_column(run, name)[:count], _column(twin, name)[:count]) for name in MEASUREMENTS
    )
    return count if same else 0


def _forked_at(stored: StoredRun) -> int | None:
    """First step that differs from the twin's: of the fault, or of the disturbance of a control run."""
    run = stored.run()
    return run.onset or run.disturbed_at


def _same_bits(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    return bool(np.array_equal(one, other, equal_nan=True) and np.array_equal(np.signbit(one), np.signbit(other)))


def _column(run: StoredRun, name: str) -> NDArray[np.float64]:
    return run.chunk.columns.get(name, np.full(len(run.chunk.step), np.nan))


def _table(runs: Sequence[StoredRun], shared: Sequence[int], labels: Sequence[Mapping[str, Any]]) -> pa.Table:
    rows = np.array([len(run.chunk.step) - count for run, count in zip(runs, shared, strict=True)])
    of_row = pa.array(np.repeat(np.arange(len(runs)), rows))
    columns: dict[str, pa.Array] = {
        name: pa.array([label[name] for label in labels], kind).take(of_row) for name, kind in RUN_COLUMNS.items()
    }
    own = list(zip(runs, shared, strict=True))
    columns[STEP] = pa.array(np.concatenate([run.chunk.step[count:] for run, count in own]), pa.int64())
    exact: dict[str, Exceptions] = {}
    for name in MEASUREMENTS:
        values = np.concatenate([_column(run, name)[count:] for run, count in own])
        single, exceptions = narrowed(values)
        columns[name] = pa.array(single, mask=np.isnan(values))
        exact |= {name: exceptions} if exceptions else {}
    texts = [_once(run) for run in runs]
    first = np.full(int(rows.sum()), -1)
    first[np.cumsum(rows) - rows] = np.arange(len(runs))
    for name in ONCE_COLUMNS:
        columns[name] = pa.array([text[name] for text in texts], pa.string()).take(pa.array(first, mask=first < 0))
    metadata = {**(SCHEMA.metadata or {}), **({EXACT_KEY: json.dumps(exact)} if exact else {})}
    fields = [column.with_type(columns[column.name].type) for column in SCHEMA]
    return pa.Table.from_arrays([columns[name] for name in SCHEMA.names], schema=pa.schema(fields, metadata))


def _once(stored: StoredRun) -> dict[str, str]:
    """``config`` and ``events``; the start keeps its place and what else it says, without the configuration."""
    events = [
        [index, {key: value for key, value in event.items() if key != "config"}]
        if event.get("event") == START
        else [index, event]
        for index, event in stored.chunk.events
    ]
    return {"config": as_json(stored.run().config), "events": as_json(events)}


def as_json(value: Any) -> str:
    """The short text of a value, in strict JSON: a reader takes no other."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return as_json(strict_json(value))


def _parquet(table: pa.Table, level: int = ZSTD_LEVEL) -> bytes:
    buffer = io.BytesIO()
    plain = {name: "BYTE_STREAM_SPLIT" for name in MEASUREMENTS if name not in DICTIONARY}
    pq.write_table(
        table,
        buffer,
        row_group_size=max(table.num_rows, 1),
        compression="zstd",
        compression_level=level,
        use_dictionary=list(DICTIONARY),
        column_encoding={**plain, **dict.fromkeys(ONCE_COLUMNS, "PLAIN"), STEP: "DELTA_BINARY_PACKED"},
        write_page_checksum=True,
    )
    return buffer.getvalue()


def _index(runs: Sequence[StoredRun], labels: Iterable[Mapping[str, Any]]) -> bytes:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*RUN_COLUMNS, "records"])
    for run, label in zip(runs, labels, strict=True):
        writer.writerow([*("" if label[name] is None else label[name] for name in RUN_COLUMNS), len(run.chunk.step)])
    return buffer.getvalue().encode()
