"""Tables and figures of the paper's study at once, as ``make reproduce`` makes them.

    python -m studies.paper.reproduce --logs logs_FULL_METRIC data/real_runs.parquet --out results

The same as ``generate_paper_tables.py`` and then ``generate_all_figures.py``; what both need is computed once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rmetric.cli import Parser, as_typed, output_folder, script
from rmetric.detectors import DETECTORS
from rmetric.engines import engine

PROGRAM = "python -m studies.paper.reproduce"


def parser() -> Parser:
    p = Parser("Make the paper's tables and figures from logs.")
    p.add_argument("--out", type=Path, default=Path("results"), help="folder for tables/ and figures/")
    p.add_evaluation()
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    DETECTORS.check(args.detectors)
    command = as_typed(PROGRAM, argv)
    tables, figures = (output_folder(args.out / part) for part in ("tables", "figures"))
    from studies.paper.results import evaluated, write_figures, write_tables  # after the arguments: --help is instant
    from studies.paper.tables import sets_beside

    with engine(args.engine, args.jobs, args.address):
        inputs = evaluated(args, args.out, tables / "cache", sets_beside())
        write_tables(inputs, tables)
        write_figures(inputs, figures, command)


if __name__ == "__main__":
    sys.exit(main())
