"""What subcommands that read logs share: their arguments, and the logs one after the other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from rmetric.cli import Parser
from rmetric.measurements import MAPPED

T = TypeVar("T")
FOUND, UNUSABLE = 1, 2
"""Exit statuses of commands that read logs, beside 0: something was found; a log cannot be used."""
FORMATS = (
    "auto", "rmetric", "jsonl", "csv", "json", "trainer_state", "console", "tensorboard", "wandb", "mlflow",
    "dvclive", "megatron_reference", "numbers",
)  # fmt: skip
"""Names for ``--format``: those of the importers, of which help texts do not wait for the import."""


def add_logs(parser: Parser) -> None:
    """``LOG…``, ``--format`` and ``--map``."""
    parser.add_argument("logs", nargs="+", metavar="LOG", help="logs, or folders of them")
    add_format(parser)


def add_format(parser: Parser) -> None:
    """``--format`` and ``--map``."""
    parser.add_argument(
        "--format", default=FORMATS[0], metavar="NAME", help=f"format of the logs: {', '.join(FORMATS)}"
    )
    parser.add_argument(
        "--map", action="append", default=[], metavar="FIELD=COLUMN",
        help=f"map our field to a log column; repeat or separate by commas; fields: {', '.join(MAPPED)}",
    )  # fmt: skip


def each(paths: list[str], read: Callable[[Path], Iterator[T]]) -> Iterator[T | None]:
    """What ``read`` finds in each log; ``None`` for one that cannot be used, of which standard error says why."""
    from rmetric.errors import UserError

    for log in files_of(paths):
        try:
            yield from read(log)
        except UserError as error:
            print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
            yield None


def files_of(paths: list[str]) -> list[Path]:
    """Logs and data sets that the paths name; a note about a folder goes to standard error."""
    from rmetric.dataset.sources import data_set_of
    from rmetric.importers import collect_logs

    data_sets = [Path(path) for path in paths if data_set_of(path) == Path(path) and Path(path).is_file()]
    others = [path for path in paths if Path(path) not in data_sets]
    logs, note = collect_logs(others) if others else ([], "")
    if note:
        print(note, file=sys.stderr)
    return [*logs, *data_sets]


def reading(args: Any) -> dict[str, Any]:
    """``format`` and ``mapping`` as functions that read a log take them."""
    from rmetric.importers import AUTO, IMPORTERS, parse_mapping

    if args.format != AUTO:
        _ = IMPORTERS[args.format]  # an unknown name is an error before any log is opened
    return {"format": args.format, "mapping": parse_mapping(args.map)}
