"""Write folders of logs into one file: the same logs give the same bytes.

python -m studies.real_runs.publish --from logs_REAL logs_REAL_TRANSFER logs_REAL_FRESH --out data/real_runs.parquet
python -m studies.real_runs.publish --from logs_FULL_METRIC/sample --out sample.parquet
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rmetric.cli import Parser, script
from rmetric.dataset.layout import ONCE_COLUMNS, RUN_COLUMNS, SCHEMA, SETS, STEP
from rmetric.dataset.sources import DATA_SET, find_logs
from rmetric.errors import UserError
from rmetric.evaluation.ground_truth import truth_of
from rmetric.evaluation.studies import in_parallel
from rmetric.files import write_atomically
from rmetric.log_reader import Chunk, assemble, chunks, read_events
from rmetric.measurements import MEASUREMENTS
from rmetric.records import Run

DICTIONARY = (
    *RUN_COLUMNS, *ONCE_COLUMNS, "validation_loss", "learning_rate", "lambda", "delta_l", "non_finite_count",
    "hardware_events", "event_worker",
)  # fmt: skip
"""Columns with few distinct values."""
ZSTD_LEVEL = 19


@dataclass(frozen=True)
class Log:
    """One log, read, with its place in the study."""

    part: str
    """One of :data:`rmetric.dataset.layout.SETS`."""
    run: Run
    chunk: Chunk

    @property
    def twin(self) -> str | None:
        """Name of the log whose records before the onset this run shares; ``None`` for a twin."""
        named = self.run.config.get("twin")
        return named if isinstance(named, str) and named != self.run.name else None

    @property
    def forked_at(self) -> int | None:
        """First step that differs from the twin's: of the fault, or of the disturbance of a control run."""
        return self.run.onset or self.run.disturbed_at


@dataclass(frozen=True)
class Written:
    """Summary of what was written."""

    path: Path
    index: Path
    """The run-level rows as a CSV file, for people."""
    runs: int
    records: int
    """Records of all logs."""
    rows: int
    """Stored: without the records that runs share with their twins."""
    size_bytes: int
    whole: list[str] = field(default_factory=list)
    """Runs that name a twin and share nothing with it as stored: it is missing, or its records differ."""
    empty: list[str] = field(default_factory=list)
    """Logs without a record, left out."""


def write_data_set(folders: Sequence[str | Path], out: str | Path, jobs: int | None = None) -> Written:
    """Read all logs of all folders and write the data set and its index.

    Parameters
    ----------
    folders
        One for each of :data:`rmetric.dataset.layout.SETS`, in this order; the last ones may be missing.
    out
        File to write, ending in ``.parquet``; the index lies beside it, ``_index.csv`` in place of the ending.
    jobs
        Processes that read; as many as there are cores if left out.

    Raises
    ------
    UserError
        If there are too many folders, one has no logs, or a log is damaged.
    """
    path = Path(out)
    if len(folders) > len(SETS):
        raise UserError(f"{len(folders)} folders, and a data set has {len(SETS)} sets: {', '.join(SETS)}")
    logs = [log for part, folder in zip(SETS, folders, strict=False) for log in _logs(folder, part, jobs)]
    kept = [log for log in logs if len(log.chunk.step)]
    if not kept:
        raise UserError(f"no log in {', '.join(map(str, folders))} holds a record; there is nothing to write")
    by_name = {(log.part, log.run.name): log for log in kept}
    shared = [_shared_records(log, by_name) for log in kept]
    labels = [{**_labels(log), "shared_records": count} for log, count in zip(kept, shared, strict=True)]
    table = pa.Table.from_arrays([*_columns(kept, shared, labels)], schema=SCHEMA)
    content = _parquet(table)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    index = path.with_name(f"{path.stem}_index.csv")
    write_atomically(index, _index(kept, labels))
    return Written(
        path=path,
        index=index,
        runs=len(kept),
        records=sum(len(log.chunk.step) for log in kept),
        rows=table.num_rows,
        size_bytes=len(content),
        whole=[log.run.name for log, count in zip(kept, shared, strict=True) if log.twin and not count],
        empty=[log.run.name for log in logs if not len(log.chunk.step)],
    )


def _logs(folder: str | Path, part: str, jobs: int | None) -> list[Log]:
    paths, _ = find_logs(folder)
    return [Log(part, run, chunk) for run, chunk in in_parallel(_read, paths, jobs, f"reading {folder}", "log")]


def _read(path: Path) -> tuple[Run, Chunk]:
    def refuse(line: int, message: str) -> None:
        raise UserError(f"{path}, line {line}: {message}")

    pieces = list(chunks(read_events(path, refuse), refuse, size=2**62))
    empty = Chunk(np.empty(0, np.int64), {}, [], {})
    return assemble(path.stem, pieces), pieces[0] if pieces else empty


def _shared_records(log: Log, by_name: Mapping[tuple[str, str], Log]) -> int:
    """Number of records before the first disturbed step, if the twin has the very same ones; 0: stored in full.

    A run keeps at least one record of its own, and a twin that is itself stored in part is nobody's twin.
    """
    twin = by_name.get((log.part, log.twin)) if log.twin else None
    if twin is None or twin.twin or log.forked_at is None:
        return 0
    count = min(int(np.searchsorted(log.chunk.step, log.forked_at)), len(log.chunk.step) - 1)
    same = np.array_equal(log.chunk.step[:count], twin.chunk.step[:count]) and all(
        _same_bits(_column(log.chunk, name)[:count], _column(twin.chunk, name)[:count]) for name in MEASUREMENTS
    )
    return count if same else 0


def _same_bits(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    return bool(np.array_equal(one, other, equal_nan=True) and np.array_equal(np.signbit(one), np.signbit(other)))


def _column(chunk: Chunk, name: str) -> NDArray[np.float64]:
    return chunk.columns.get(name, np.full(len(chunk.step), np.nan))


def _labels(log: Log) -> dict[str, Any]:
    run, truth = log.run, truth_of(log.run)
    injection = run.config.get("fault_injection")
    injection = injection if isinstance(injection, dict) else {}
    return {
        "set": log.part,
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
        "twin": log.twin,
    }


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return value if fits else None


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _once(log: Log) -> dict[str, str | None]:
    """``config`` and ``events``; the start keeps its place and what else it says, without the configuration."""
    events = [
        [index, {key: value for key, value in event.items() if key != "config"}]
        if event.get("event") == "EXPERIMENT_START"
        else [index, event]
        for index, event in log.chunk.events
    ]
    return {"config": _json(log.run.config), "events": _json(events)}


def _columns(logs: Sequence[Log], shared: Sequence[int], labels: Sequence[Mapping[str, Any]]) -> Iterable[pa.Array]:
    rows = np.array([len(log.chunk.step) - count for log, count in zip(logs, shared, strict=True)])
    for name, kind in RUN_COLUMNS.items():
        yield pa.array([label[name] for label in labels], kind).take(pa.array(np.repeat(np.arange(len(logs)), rows)))
    own = list(zip(logs, shared, strict=True))
    yield pa.array(np.concatenate([log.chunk.step[count:] for log, count in own]), pa.int64())
    for name in MEASUREMENTS:
        values = np.concatenate([_column(log.chunk, name)[count:] for log, count in own])
        yield pa.array(values, pa.float64(), mask=np.isnan(values))
    texts = [_once(log) for log in logs]
    first = np.full(int(rows.sum()), -1)
    first[np.cumsum(rows) - rows] = np.arange(len(logs))
    for name in ONCE_COLUMNS:
        yield pa.array([text[name] for text in texts], pa.string()).take(pa.array(first, mask=first < 0))


def _parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    plain = {name: "BYTE_STREAM_SPLIT" for name in MEASUREMENTS if name not in DICTIONARY}
    pq.write_table(
        table,
        buffer,
        row_group_size=max(table.num_rows, 1),
        compression="zstd",
        compression_level=ZSTD_LEVEL,
        use_dictionary=list(DICTIONARY),
        column_encoding={**plain, STEP: "DELTA_BINARY_PACKED"},
        write_page_checksum=True,
    )
    return buffer.getvalue()


def _index(logs: Sequence[Log], labels: Sequence[Mapping[str, Any]]) -> bytes:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*RUN_COLUMNS, "records"])
    for log, label in zip(logs, labels, strict=True):
        writer.writerow([*("" if label[name] is None else label[name] for name in RUN_COLUMNS), len(log.chunk.step)])
    return buffer.getvalue().encode()


def parser() -> Parser:
    """Command line of this module."""
    p = Parser("Write the runs of folders of logs into one Parquet file, with an index of the runs as CSV beside it.")
    p.add_argument(
        "--from", dest="folders", nargs="+", type=Path, default=[Path("logs_REAL")], metavar="FOLDER",
        help="logs of the study, then of the sets beside it: transfer, fresh, transfer_2, fresh_2, transfer_3 to _5",
    )  # fmt: skip
    p.add_argument("--out", type=parquet_file, default=Path("data/real_runs.parquet"), metavar="FILE", help="data set")
    p.add_jobs()
    return p


def parquet_file(text: str) -> Path:
    """Argument type: the name of a Parquet file."""
    if not text.casefold().endswith(DATA_SET):
        raise argparse.ArgumentTypeError(f"{text!r} does not end in {DATA_SET}")
    return Path(text)


@script
def main(argv: Sequence[str] | None = None) -> None:
    """Parse, write, say what was written."""
    args = parser().parse_args(argv)

    written = write_data_set(args.folders, args.out, args.jobs)
    if written.empty:
        print(f"warning: {len(written.empty)} logs hold no record and are left out, such as {written.empty[0]}")
    if written.whole:
        print(f"note: {len(written.whole)} runs are stored in full, apart from their twins, such as {written.whole[0]}")
    print(
        f"{written.runs:,} runs, {written.records:,} records in {written.rows:,} rows, "
        f"{written.size_bytes / 1e6:.1f} MB: {written.path}; one line a run: {written.index}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
