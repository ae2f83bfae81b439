"""Make Tables 1 to 18 and the headline from logs: on the screen, and as Markdown, CSV and LaTeX.

    python generate_paper_tables.py                                  # logs_FULL_METRIC/ into results/tables/
    python generate_paper_tables.py --logs logs_FULL_METRIC data/real_runs.parquet    # both studies: minutes
    python generate_paper_tables.py --logs logs_SMOKE --out results/smoke --bootstrap 200

Scores are kept in results/tables/cache/, so that a second call takes seconds. Leads are in steps, false alarms per
1,000 healthy steps, intervals 95 %; how warnings are counted: docs/protocols.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rmetric.cli import Parser, output_folder, script
from rmetric.detectors import DETECTORS, make_detector
from rmetric.engines import engine
from rmetric.errors import UserError


def table_number(text: str) -> str:
    """Argument type: the number of a registered table, such as 3 for Tables 3 to 3d."""
    from studies.paper.tables import CATALOGUE

    try:
        CATALOGUE.chosen([text])
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def parser() -> Parser:
    """Command line of this script."""
    p = Parser("Make the paper's tables from logs, under the paper's protocol and a strict one.")
    p.add_argument("--out", type=Path, default=Path("results/tables"), help="folder for the tables")
    p.add_argument("--cache", type=Path, help="folder for the detectors' scores (default: OUT/cache)")
    p.add_argument(
        "--tables", nargs="+", type=table_number, default=[], metavar="N", help="tables by number, or headline"
    )
    p.add_argument(
        "--list-detectors", action="store_true", help="list the detectors with their titles and thresholds, and exit"
    )
    p.add_evaluation()
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    if args.list_detectors:
        for name, detector in DETECTORS.items():
            print(f"{name:24} {detector.title:32} alert above {make_detector(name).threshold:<6g} {detector.source}")
        return
    DETECTORS.check(args.detectors)
    out = output_folder(args.out)
    from studies.paper.results import evaluated, write_tables  # after the arguments: --help is instant
    from studies.paper.tables import sets_beside

    with engine(args.engine, args.jobs, args.address):
        inputs = evaluated(args, out.parent, args.cache or out / "cache", sets_beside(args.tables))
        write_tables(inputs, out, args.tables)


if __name__ == "__main__":
    sys.exit(main())
