"""Make Tables 1 to 18 and the headline from logs: on the screen, and as Markdown, CSV and LaTeX.

    python generate_paper_tables.py                                  # logs_FULL_METRIC/ into results/tables/
    python generate_paper_tables.py --logs logs_FULL_METRIC data/real_runs.parquet    # both studies: minutes
    python generate_paper_tables.py --logs logs_SMOKE --out results/smoke --bootstrap 200

Scores are kept in results/tables/cache/, so that a second call takes seconds. Leads are in steps, false alarms per
1,000 healthy steps, intervals 95 %; how warnings are counted: docs/protocols.md.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rmetric.cli import Parser, output_folder, script
from rmetric.detectors import DETECTORS
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
    p.add_argument("--protocol", choices=("both", "paper", "strict"), default="both", help="columns to show")
    p.add_argument(
        "--tables", nargs="+", type=table_number, default=[], metavar="N", help="tables by number, or headline"
    )
    p.add_evaluation()
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    for name in args.detectors:
        DETECTORS[name]
    with engine(args.engine, args.jobs, args.address):
        make_tables(args, output_folder(args.out))


def make_tables(args: argparse.Namespace, out: Path) -> None:
    """Load, score (or take the scores that are kept), count, write and print."""
    from rmetric.evaluation.studies import load_extra_sets, load_studies
    from rmetric.reporting.table import SCREEN_WIDTH, latex_document, to_screen, write
    from studies.live_results import LiveResults
    from studies.paper.tables import CATALOGUE, build_tables, sets_beside
    from studies.several import evaluators

    studies = load_studies(args.logs, args.jobs)
    sources = dict(zip(studies, args.logs, strict=True))
    beside = {part: load_extra_sets(part, sources, args.jobs) for part in sets_beside(args.tables)}
    every = [*studies.values(), *(study for found in beside.values() for study in found.values())]
    for study in every:
        for warning in study.warnings():
            print(f"warning: {warning}", file=sys.stderr)
    cache = args.cache or out / "cache"
    options = {"jobs": args.jobs, "plugins": args.plugin, "draws": args.bootstrap, "seed": args.seed}
    tables = build_tables(
        evaluators(studies, args.detectors, cache=cache, **options),
        args.protocol,
        LiveResults.read(out.parent),
        {part: evaluators(found, args.detectors, cache=cache / part, **options) for part, found in beside.items()},
        args.tables,
    )
    made = {table.name for table in tables}
    missing = [number for number in args.tables if made.isdisjoint(each.name for each in CATALOGUE.chosen([number]))]
    if missing:
        said = f"table {', '.join(missing)} needs what these logs lack; add data/real_runs.parquet to --logs"
        if not tables:
            raise UserError(said)
        print(f"warning: {said}", file=sys.stderr)
    for table in tables:
        write(table, out)
        print(to_screen(table, shutil.get_terminal_size((SCREEN_WIDTH, 50)).columns))
    (out / "all_tables.tex").write_text(latex_document(tables), encoding="utf-8")
    for study in studies.values():
        if study.note:
            print(study.note)
    logs = sum(len(study.runs) for study in every)
    print(f"{len(tables)} tables from {logs:,} logs written to {out}/ as .md, .csv and .tex")


if __name__ == "__main__":
    sys.exit(main())
