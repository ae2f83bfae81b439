"""Write the runs of a data set as logs again, for programs that read logs alone, such as the authors' own scripts.

python -m rmetric.dataset.unpack data/real_runs.parquet --out logs_UNPACKED
python -m rmetric.dataset.unpack data/real_runs.parquet:transfer --runs NAME --out logs_UNPACKED
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rmetric.cli import Parser, output_folder, script
from rmetric.dataset.sources import data_set_of, log_in
from rmetric.errors import UserError, did_you_mean
from rmetric.files import refuse_loss, write_atomically
from rmetric.log_writer import encode_metrics
from rmetric.measurements import MEASUREMENTS

if TYPE_CHECKING:
    from rmetric.dataset.stored import StoredRun


def log_of(stored: StoredRun) -> bytes:
    """The log of a run, without what its own detectors had said in its records."""
    chunk = stored.chunk
    floats = {name: chunk.columns[name] for name in MEASUREMENTS if name in chunk.columns}
    return encode_metrics(chunk.step, floats, {}, chunk.events)


def parser() -> Parser:
    p = Parser("Write the runs of a data set as logs again.")
    p.add_argument("data_set", metavar="FILE[:SET]", help="data set, or a set that lies beside it")
    p.add_argument("--runs", nargs="+", default=[], metavar="NAME", help="runs by name (default: all of the set)")
    p.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder for the logs")
    p.add_argument("--overwrite", action="store_true", help="replace files that are there")
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    file = data_set_of(args.data_set)
    if file is None:
        raise UserError(
            f"{args.data_set} is no .parquet file; give a data set made by python -m studies.real_runs.publish"
        )
    from rmetric.dataset.read import read_stored

    stored = {item.name: item for item in read_stored(file)}
    for name in args.runs:
        if name not in stored:
            raise UserError(f"no run is named {name}{did_you_mean(name, stored, cutoff=0.3)}")
    out = output_folder(args.out)
    chosen = args.runs or list(stored)
    files = {name: log_in(out, name, "choose others with --runs") for name in chosen}
    for file in files.values():
        refuse_loss(file, args.overwrite)
    for name, file in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, log_of(stored[name]))
    print(f"{len(files)} logs written to {out}/")


if __name__ == "__main__":
    sys.exit(main())
