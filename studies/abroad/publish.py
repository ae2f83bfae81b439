"""Publish the strangers' runs whose licence allows it, as data sets of this project's layout, a file a source.

    python -m studies.abroad.publish --from FOLDER --out data

``outcome`` and ``failure_step`` (a record's number) of a run are those of :mod:`studies.abroad.labels`; its source, its
origin and its licence stand in ``config``, the licences' texts beside the files in ``licences/``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rmetric.cli import Parser, script
from rmetric.records import Run
from studies import DATA
from studies.abroad.labels import label_of
from studies.abroad.strangers import PUBLISHED, read_strangers
from studies.real_runs.publish import write_runs


def labels_of(run: Run) -> dict[str, Any]:
    """Outcome of a run, judged with hindsight."""
    failure = label_of(run).failure
    return {"outcome": "clean" if failure is None else "failed", "failure_step": failure}


def parser() -> Parser:
    p = Parser("Publish strangers' runs whose licence allows it, one data set a source.")
    p.add_argument("--from", dest="folder", type=Path, required=True, help="folder with runs.csv and Parquet files")
    p.add_argument("--out", type=Path, default=DATA, help="folder for the data sets")
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    for source in PUBLISHED:
        runs = read_strangers(args.folder, [source])
        write_runs(runs, args.out / f"{source}.parquet", [labels_of(run) for run in runs])
        print(f"{args.out / source}.parquet: {len(runs)} runs, {sum(len(run.observations) for run in runs):,} records")


if __name__ == "__main__":
    sys.exit(main())
