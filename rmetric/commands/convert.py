"""``rmetric convert LOG… --out FILE``: logs in this project's formats."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rmetric.commands.logs import add_logs, each, reading

UNUSABLE = 2
EPILOG = """\
examples:
  rmetric convert trainer_state.json --out run.jsonl
  rmetric convert logs/ --out runs.parquet
"""


def add_parser(commands: Any, summary: str) -> None:
    """Add the subcommand."""
    p = commands.add_parser("convert", help=summary, description=f"Write {summary}.", epilog=EPILOG, examples=True)
    add_logs(p)
    p.add_argument(
        "--out", type=Path, required=True, metavar="PATH",
        help="FILE.jsonl for one run, FILE.parquet for a data set of all (its index as CSV beside it), else a folder",
    )  # fmt: skip
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read all, write, say what was written."""
    from rmetric.conversion import write_converted
    from rmetric.importers import runs_of

    options = reading(args)
    found = list(each(args.logs, lambda log: runs_of(log, **options)))
    runs = [one.run for one in found if one is not None]
    if runs:
        for file in write_converted(runs, args.out):
            print(f"wrote {file}")
    return UNUSABLE if len(runs) < len(found) else 0
