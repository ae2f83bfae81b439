"""What subcommands that read logs share: their arguments, and the logs one after the other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from rmetric.cli import Parser

T = TypeVar("T")


def add_logs(parser: Parser) -> None:
    """``LOG…``, ``--format`` and ``--map``."""
    parser.add_argument("logs", nargs="+", metavar="LOG", help="logs, or folders of them")
    add_format(parser)


def add_format(parser: Parser) -> None:
    """``--format`` and ``--map``."""
    parser.add_argument("--format", default="auto", metavar="NAME", help="format of the logs, as docs/replay.md has it")
    parser.add_argument(
        "--map", action="append", default=[], metavar="OURS=THEIRS",
        help="our field = the log's column, repeatable, commas between, such as training_loss=loss",
    )  # fmt: skip


def each(paths: list[str], read: Callable[[Path], Iterator[T]]) -> Iterator[T | None]:
    """What ``read`` finds in each log; ``None`` for one that cannot be used, of which standard error says why."""
    from rmetric.errors import UserError
    from rmetric.importers import collect_logs

    logs, note = collect_logs(paths)
    if note:
        print(note, file=sys.stderr)
    for log in logs:
        try:
            yield from read(log)
        except UserError as error:
            print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
            yield None


def reading(args: Any) -> dict[str, Any]:
    """``format`` and ``mapping`` as functions that read a log take them."""
    from rmetric.importers import AUTO, IMPORTERS, parse_mapping

    if args.format != AUTO:
        _ = IMPORTERS[args.format]  # an unknown name is an error before any log is opened
    return {"format": args.format, "mapping": parse_mapping(args.map)}
