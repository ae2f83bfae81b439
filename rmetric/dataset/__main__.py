"""Folders of logs to one data set.

python -m rmetric.dataset --from logs_REAL logs_REAL_TRANSFER logs_REAL_FRESH --out data/real_runs.parquet
python -m rmetric.dataset --from logs_FULL_METRIC/sample --out sample.parquet
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rmetric.cli import DATA_SET, Parser, script


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
    from rmetric.dataset.write import write_data_set  # after the arguments are known to be good: --help is instant

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
