"""Write a folder of logs, or runs in memory, into a data set: the same logs give the same bytes.

python -m studies.real_runs.publish --from logs_REAL --out data/real_runs.parquet
python -m studies.real_runs.publish --from logs_REAL_TRANSFER --out data/real_runs_transfer.parquet
python -m studies.real_runs.publish --from logs_FULL_METRIC/sample --out sample.parquet
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rmetric.cli import Parser, script
from rmetric.conversion import chunk_of, labels_of
from rmetric.dataset.layout import RUN_COLUMNS
from rmetric.dataset.sources import DATA_SET, find_logs
from rmetric.dataset.stored import StoredRun
from rmetric.dataset.write import Written, write_stored
from rmetric.errors import UserError
from rmetric.evaluation.studies import in_parallel
from rmetric.log_lines import read_events
from rmetric.log_reader import Chunk, assemble, chunks
from rmetric.log_writer import to_log_precision
from rmetric.records import Run


def write_data_set(folder: str | Path, out: str | Path, jobs: int | None = None) -> Written:
    """Read all logs of a folder and write the data set and its index.

    Parameters
    ----------
    folder
        With the ``.jsonl`` logs.
    out
        File to write, ending in ``.parquet``; its name is that of the set. The index lies beside it, ``_index.csv`` in
        place of the ending.
    jobs
        Processes that read; as many as there are cores if left out.

    Raises
    ------
    UserError
        If there are no logs, none holds a record, or one is damaged.
    """
    paths, _ = find_logs(folder)
    return write_stored([*in_parallel(_read, paths, jobs, f"reading {folder}", "log")], out)


def write_runs(runs: Sequence[Run], out: str | Path, labels: Sequence[Mapping[str, Any]] = ()) -> Written:
    """Write runs in memory, such as strangers' runs, as a data set with its index.

    Their values are rounded to the 7 digits of a log.

    Parameters
    ----------
    runs
        In the order that the file is to have; ``config`` and ``events`` say what a log would.
    out
        As in :func:`write_data_set`.
    labels
        One for each run: values of :data:`~rmetric.dataset.layout.RUN_COLUMNS` in place of what the run says. None by
        default.
    """
    named = labels or [{}] * len(runs)
    for unknown in {name for label in named for name in label} - {*RUN_COLUMNS}:
        raise ValueError(f"no column is named {unknown!r}; choose among {', '.join(RUN_COLUMNS)}")
    stored = [StoredRun({**labels_of(run), **own}, _rounded(run)) for run, own in zip(runs, named, strict=True)]
    return write_stored(stored, out)


def _rounded(run: Run) -> Chunk:
    chunk = chunk_of(run)
    return replace(chunk, columns={name: to_log_precision(values) for name, values in chunk.columns.items()})


def _read(path: Path) -> StoredRun:
    def refuse(line: int, message: str) -> None:
        raise UserError(f"{path}, line {line}: {message}")

    pieces = list(chunks(read_events(path, refuse), refuse, size=2**62))
    chunk = pieces[0] if pieces else Chunk(np.empty(0, np.int64), {}, [], None)
    return StoredRun(labels_of(assemble(path.stem, pieces)), chunk)


def parser() -> Parser:
    p = Parser("Write the runs of a folder of logs into one Parquet file, with an index of the runs as CSV beside it.")
    p.add_argument("--from", dest="folder", type=Path, default=Path("logs_REAL"), metavar="FOLDER", help="logs")
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

    written = write_data_set(args.folder, args.out, args.jobs)
    if written.empty:
        print(f"warning: {len(written.empty)} logs hold no record and are left out, such as {written.empty[0]}")
    if written.whole:
        print(f"note: {len(written.whole)} runs are stored in full, apart from their twins, such as {written.whole[0]}")
    print(
        f"{written.runs:,} runs, {written.records:,} records in {written.rows:,} rows, "
        f"{written.size_bytes / 1e6:.1f} MB: {written.path}; one line a run: {written.index}"
    )


if __name__ == "__main__":
    sys.exit(main())
