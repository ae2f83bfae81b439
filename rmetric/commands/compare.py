"""``rmetric compare A B``: the first step at which two runs differ."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmetric.commands.logs import FOUND, UNUSABLE, add_format, files_of, reading

if TYPE_CHECKING:
    from rmetric.records import Run

EPILOG = """\
examples:
  rmetric compare before_the_change.jsonl after_the_change.jsonl

Steps are training steps as the logs count them; only steps that both logs have are compared.
Exit status: 0 no change beyond noise, 1 a difference, 2 a log that cannot be used or nothing to compare.
"""


def add_parser(commands: Any, summary: str) -> None:
    p = commands.add_parser("compare", help=summary, description=f"Find {summary}.", epilog=EPILOG, examples=True)
    p.add_argument("a", metavar="A", type=Path, help="log of the first run")
    p.add_argument("b", metavar="B", type=Path, help="log of the second run")
    add_format(p)
    p.add_argument("--json", action="store_true", help="print JSON")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Compare, print, and tell by the exit status."""
    from rmetric.comparison import compare
    from rmetric.importers.log_names import shown_names

    options = reading(args)
    (log_a, a), (log_b, b) = (_only_run(log, options) for log in (args.a, args.b))
    a.name, b.name = shown_names([(log_a, a.name), (log_b, b.name)])
    found = compare(a, b)
    print(json.dumps(found.to_dict(), indent=1, allow_nan=False) if args.json else found)
    if not found.compared:
        return UNUSABLE
    return FOUND if found.first else 0


def _only_run(log: Path, options: dict[str, Any]) -> tuple[Path, Run]:
    from rmetric.errors import UserError
    from rmetric.importers import runs_of

    logs = files_of([str(log)])
    if len(logs) != 1:
        raise UserError(f"{log} is a folder of {len(logs)} logs, and one is due; name one of them")
    runs = [one.run for one in runs_of(logs[0], **options)]
    if len(runs) != 1:
        raise UserError(f"{log} holds {len(runs)} runs, and one is due; convert it to a folder of logs first")
    return logs[0], runs[0]
