"""``rmetric report LOG… --out FILE``: one page about one or more runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rmetric.commands.logs import UNUSABLE, add_logs, each, reading
from rmetric.errors import UserError

PAGE_BEGINS = b"<!doctype html"
EPILOG = """\
examples:
  rmetric report run.jsonl
  rmetric report good.csv bad.csv --out both.html

The page holds all it needs and loads nothing: send it, open it offline, print it. Steps are training steps as the log
counts them. Exit status: 0; 2 if a log cannot be used (the others are in the page).
"""


def add_parser(commands: Any, summary: str) -> None:
    p = commands.add_parser("report", help=summary, description=f"Write {summary}.", epilog=EPILOG, examples=True)
    add_logs(p)
    p.add_argument("--out", type=Path, default=Path("report.html"), metavar="FILE", help="HTML file to write")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read all, write the page, say where it is."""
    from rmetric.importers import portions_of
    from rmetric.importers.log_names import shown_names
    from rmetric.log_lines import plain_text
    from rmetric.report import ReportedRun, write_report

    if args.out.is_dir():
        raise UserError(f"{args.out} is a folder; give the page a name: --out {args.out / 'report.html'}")
    if args.out.is_file() and not _is_page(args.out):
        raise UserError(f"{args.out} exists and is not a report page; give another --out")
    options = reading(args)

    def reported(log: Path) -> Iterator[ReportedRun]:
        for portions in portions_of(log, **options):
            run = ReportedRun.of(portions, source=str(log))
            if run is not None:
                yield run

    found = list(each(args.logs, reported))
    runs = [run for run in found if run is not None]
    if runs:
        names = shown_names([(Path(run.diagnosis.source), run.diagnosis.run) for run in runs])
        runs = [replace(run, name=plain_text(name)) for run, name in zip(runs, names, strict=True)]
        args.out.parent.mkdir(parents=True, exist_ok=True)
        write_report(runs, args.out)
        size_kb = args.out.stat().st_size / 1000
        print(f"wrote {args.out} ({len(runs)} run{'s' if len(runs) > 1 else ''}, {size_kb:,.0f} kB)")
    return UNUSABLE if len(runs) < len(found) else 0


def _is_page(file: Path) -> bool:
    """Whether a file may be replaced: a page that was written before, or nothing."""
    with open(file, "rb") as there:
        return there.read(len(PAGE_BEGINS)).lower() in (PAGE_BEGINS, b"")
