"""Which logs of strangers do other people's tools read? A table of files by format and tool.

    python benchmarks/peer_formats.py FOLDER --python peers/bin/python

FOLDER has a folder a format with logs in it. A tool reads a log if its command for finished runs judges it, whatever it
says; this project if it finds a run with a record.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from peer_findings import OURS, asked
from peers import TOOLS

from rmetric.cli import Parser, positive_number, script
from rmetric.errors import UserError
from rmetric.importers import runs_of
from rmetric.progress import progress_bar

RECORDER = "trainscope"
"""Reads no logs of others."""


def parser() -> Parser:
    """Command line of this script."""
    p = Parser("Count the logs of each format that tools read.")
    p.add_argument("folder", type=Path, help="a folder with a folder a format")
    p.add_argument("--python", default=sys.executable, metavar="PATH", help="interpreter that has the tools")
    p.add_argument("--timeout", type=positive_number, default=60.0, help="seconds that a tool has for one log")
    p.add_jobs()
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    """Ask each tool about each log, print the table."""
    args = parser().parse_args(argv)
    logs = sorted(log for log in args.folder.glob("*/*") if log.is_file())
    if not logs:
        raise UserError(f"{args.folder} has no folders with logs in them; give a folder with a folder a format")
    read = pd.DataFrame({"format": [log.parent.name for log in logs], OURS: [*map(is_read, progress_bar(logs))]})
    for tool in TOOLS:
        if tool != RECORDER:
            read[tool] = [answer.get("findings") is not None for answer in asked(tool, logs, args)]
    counts = read.groupby("format").sum()
    counts.insert(0, "files", read.groupby("format").size())
    counts.loc["all"] = counts.sum()
    print(counts.to_markdown())


def is_read(log: Path) -> bool:
    """Whether the log holds a run with a record."""
    try:
        return any(len(logged.run.observations) for logged in runs_of(log))
    except UserError:
        return False


if __name__ == "__main__":
    sys.exit(main())
