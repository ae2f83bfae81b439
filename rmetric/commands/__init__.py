"""The command ``rmetric``: one file a subcommand, imported when it is asked for.

A subcommand is a module of its name with ``add_parser(commands, summary)``, which adds its parser and sets ``run``, the
function that takes the parsed arguments and returns the exit status.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from rmetric import __version__
from rmetric.cli import Parser, script

COMMANDS = {
    "diagnose": "verdict on each run: healthy, or what is wrong, since when, how sure, and what to do",
    "watch": "growing logs, and notify you when a run begins to go wrong",
    "report": "a self-contained HTML page with curves, alerts and findings of one or more runs",
    "compare": "the first step at which two runs differ by more than noise explains, signal by signal",
    "convert": "logs of any format that can be read into this project's formats, JSON lines or Parquet",
    "replay": "recompute signals, R and every alert of logs; a plot, a CSV and a summary each",
}
"""Subcommand → its purpose in one line."""


def parser(chosen: str | None = None) -> Parser:
    """The command line; options are known of the ``chosen`` subcommand alone, so that nothing else is imported."""
    p = Parser("Find out from training logs what is wrong with a run.", prog="rmetric")
    p.add_argument("--version", action="version", version=f"rmetric {__version__}")
    commands = p.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        if name == chosen:
            import_module(f"rmetric.commands.{name}").add_parser(commands, summary)
        else:
            commands.add_parser(name, help=summary, description=summary)
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; its exit status."""
    words = sys.argv[1:] if argv is None else list(argv)
    args: argparse.Namespace = parser(words[0] if words else None).parse_args(words)
    return args.run(args)
