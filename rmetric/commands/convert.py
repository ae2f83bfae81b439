"""``rmetric convert LOG… --out FILE``: logs in this project's formats."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmetric.commands.logs import UNUSABLE, add_logs, each, reading

if TYPE_CHECKING:
    from rmetric.importers import LoggedPortions

EPILOG = """\
examples:
  rmetric convert trainer_state.json --out run.jsonl
  rmetric convert logs/ --out runs.parquet
"""


def add_parser(commands: Any, summary: str) -> None:
    p = commands.add_parser("convert", help=summary, description=f"Write {summary}.", epilog=EPILOG, examples=True)
    add_logs(p)
    p.add_argument(
        "--out", type=Path, required=True, metavar="PATH",
        help="FILE.jsonl for one run, FILE.parquet for a data set of all (its index as CSV beside it), else a folder",
    )  # fmt: skip
    p.add_argument("--overwrite", action="store_true", help="replace files that are there")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read all, write, say what was written and what was not."""
    from rmetric.conversion import write_converted
    from rmetric.importers import portions_of
    from rmetric.log_lines import plain_text

    options, unusable = reading(args), 0

    def usable() -> Iterator[LoggedPortions]:
        nonlocal unusable
        for log in each(args.logs, lambda log: portions_of(log, **options)):
            if log is None:
                unusable += 1
            else:
                yield log  # and its portions are taken
                for note in log.caveats().notes:
                    print(f"{plain_text(log.name)}: {plain_text(note, None)}", file=sys.stderr)

    for file in write_converted(usable(), args.out, overwrite=args.overwrite, read=args.logs):
        print(f"wrote {plain_text(file, None)}")
    return UNUSABLE if unusable else 0
