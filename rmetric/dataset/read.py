"""Read the runs of a data set, the same as :func:`rmetric.log_reader.read_run` gives for the logs it was made from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rmetric.dataset.layout import EXACT_KEY, FORMAT, FORMAT_KEY, ONCE_COLUMNS, RUN_COLUMNS, SCHEMA, STEP
from rmetric.dataset.precision import widened
from rmetric.dataset.stored import StoredRun
from rmetric.errors import UserError
from rmetric.log_reader import Chunk
from rmetric.measurements import MEASUREMENTS
from rmetric.records import Event, Run


def read_stored(path: str | Path) -> list[StoredRun]:
    """The runs of a data set, in the order in which the file has them.

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


def read_runs(path: str | Path) -> list[Run]:
    """The runs, as :func:`read_stored` finds them."""
    return [stored.run() for stored in read_stored(path)]


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
                table = table.append_column(name, pa.nulls(len(table), pa.float32()))
            return table.select(SCHEMA.names).cast(_types_of(table))
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{file} is damaged or no Parquet file; get it again") from error


def _types_of(table: pa.Table) -> pa.Schema:
    """The schema of a data set, with doubles where this one has them in a measurement."""
    doubles = {name for name in MEASUREMENTS if table.schema.field(name).type == pa.float64()}
    types = [field.with_type(pa.float64()) if field.name in doubles else field for field in SCHEMA]
    return pa.schema(types, table.schema.metadata)


def _runs(table: pa.Table) -> list[StoredRun]:
    config_N = table.column("config").combine_chunks()
    first_R = np.flatnonzero(config_N.is_valid().to_numpy(zero_copy_only=False))
    if len(table) and (not len(first_R) or first_R[0] != 0):
        raise ValueError("rows before the first run")
    labels = table.select([*RUN_COLUMNS, *ONCE_COLUMNS]).take(pa.array(first_R)).to_pylist()
    step_N = table.column(STEP).to_numpy()
    exact = json.loads((table.schema.metadata or {}).get(EXACT_KEY, b"{}"))
    values = {
        name: widened(table.column(name).to_numpy(), {int(row): value for row, value in exact.get(name, {}).items()})
        for name in MEASUREMENTS
    }

    def own(row: int) -> slice:
        return slice(int(first_R[row]), int(first_R[row + 1]) if row + 1 < len(first_R) else len(table))

    place = {row["run"]: index for index, row in enumerate(labels)}

    def columns(row: int) -> Iterator[tuple[str, NDArray[Any]]]:
        shared = labels[row]["shared_records"] or 0
        before = own(place[labels[row]["twin"]]) if shared else slice(0, 0)
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
