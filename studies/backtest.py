"""Compare two makings of the study: every log byte for byte, every number of every table.

python -m studies.backtest OLD NEW                  # two working trees, after `make reproduce` in each
python -m studies.backtest OLD NEW --logs logs_SMOKE --tables results_smoke/tables

A change that is meant to change no number is checked with it: captions, columns and the order of rows may differ; a
number that a table had and has no longer is reported. The exit status is 1 if anything is missing or differs.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rmetric.cli import Parser, script
from rmetric.errors import UserError
from rmetric.files import checksum

NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])")


def different_logs(old: Path, new: Path) -> list[str]:
    """Names of the logs that are missing on one side or are not the same to the byte."""
    before, after = _digests(old), _digests(new)
    return sorted(name for name in {*before} | {*after} if before.get(name) != after.get(name))


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: checksum(path) for path in folder.glob("run_*.jsonl")}


def missing_numbers(old: Path, new: Path) -> dict[str, Counter[str]]:
    """Table → numbers that its new CSV file has less often than the old one; tables that lack none are left out."""
    missing = {path.name: Counter(_numbers(path)) - Counter(_numbers(new / path.name)) for path in old.glob("*.csv")}
    return {name: counts for name, counts in sorted(missing.items()) if counts}


def _numbers(path: Path) -> Iterator[str]:
    """All numbers in the cells below the header, written alike whether they stood as 0.50 or 0.5."""
    if not path.exists():
        return
    with open(path, newline="", encoding="utf-8") as file:
        for row in list(csv.reader(file))[1:]:
            for cell in row:
                for text in NUMBER.findall(cell):
                    yield f"{float(text.replace(',', '')):.12g}"


def parser() -> Parser:
    p = Parser(__doc__, examples=True)
    p.add_argument("old", type=Path, help="working tree before the change")
    p.add_argument("new", type=Path, help="working tree after the change")
    p.add_argument("--logs", default="logs_FULL_METRIC", help="folder of the logs in both")
    p.add_argument("--tables", default="results/tables", help="folder of the tables in both")
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    """Print what differs; the exit status is 1 if anything does."""
    args = parser().parse_args(argv)
    for tree in (args.old, args.new):
        if not any((tree / args.logs).glob("run_*.jsonl")) or not any((tree / args.tables).glob("*.csv")):
            raise UserError(
                f"{tree} has no logs in {args.logs} or no tables in {args.tables}; run make reproduce there"
            )
    logs = different_logs(args.old / args.logs, args.new / args.logs)
    numbers = missing_numbers(args.old / args.tables, args.new / args.tables)
    print(f"logs: {len(_digests(args.old / args.logs))} before, {len(logs)} differ or are missing", *logs[:5])
    print(f"tables: {len(list((args.old / args.tables).glob('*.csv')))} before, {len(numbers)} lack numbers")
    for name, counts in numbers.items():
        some = ", ".join(f"{text} × {count}" for text, count in counts.most_common(8))
        print(f"  {name}: {counts.total()} missing ({some})")
    if logs or numbers:
        raise SystemExit(1)


if __name__ == "__main__":
    sys.exit(main())
