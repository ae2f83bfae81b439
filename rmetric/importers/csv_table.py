"""CSV (also with semicolons, tabs or bars): a header, then one record a row."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from rmetric.importers.base import register_importer
from rmetric.importers.columns import Row
from rmetric.importers.tables import imported
from rmetric.log_reader import NumberedEvent, OnDamage, numbered_lines
from rmetric.measurements import in_convention

_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+(?:[eE][-+]?\d+)?\s*")
DELIMITERS = (",", ";", "\t", "|")
MISSING = frozenset({"", "-", "--", "na", "n/a", "null", "none"})
"""Cells that mean: not measured. ``nan`` is not among them: a NaN that was written was measured."""


@register_importer("csv")
def read_csv(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """A table with a header, one row a line. Lines that begin with ``#`` are comments.

    An empty cell is *not measured*; ``nan`` and ``inf`` are *measured and not finite*. Between semicolons ``2,5`` is
    two and a half, as spreadsheets of many countries write it. A row with another number of cells than the header is
    reported and left out.
    """
    return imported(path, lambda report: csv_rows(path, report), mapping, on_damage)


def delimiter_of(header: str) -> str:
    """The delimiter that a header line has most of.

    >>> delimiter_of("step;loss;learning rate, initial")
    ';'
    """
    return max(DELIMITERS, key=header.count)


def csv_rows(path: Path, on_damage: OnDamage) -> Iterator[Row]:
    """The rows as they stand there."""
    lines = _lines(path, on_damage)
    number, header = next(lines, (0, ""))
    delimiter = delimiter_of(header)
    names = [name.strip() for name in _cells(header, delimiter) or ()]
    value_of = _value_with_comma if delimiter == ";" else _value
    for number, text in lines:
        cells = _cells(text, delimiter)
        if cells is None or len(cells) != len(names):
            found = "an open quote" if cells is None else f"{len(cells)} cells"
            on_damage(number, f"{found} where {len(names)} cells are due; skipped")
            continue
        yield Row(number, {name: value_of(cell) for name, cell in zip(names, cells, strict=True)})


def _lines(path: Path, on_damage: OnDamage) -> Iterator[tuple[int, str]]:
    """Numbered lines that are neither empty nor comments, without their line ends, in bounded memory."""
    for number, line in numbered_lines(path, on_damage):
        if line.startswith(b"#"):
            continue
        try:
            text = line.decode()
        except UnicodeDecodeError:
            on_damage(number, "not UTF-8; the bad bytes were replaced")
            text = line.decode(errors="replace")
        yield number, text.rstrip("\r\n")


def _cells(text: str, delimiter: str) -> list[str] | None:
    if '"' not in text:
        return text.split(delimiter)
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True))
    except (csv.Error, StopIteration):
        return None


def _value(cell: str) -> int | float | str | None:
    try:
        return int(cell)
    except ValueError:
        pass
    try:
        return in_convention(float(cell))
    except ValueError:
        return None if cell.strip().casefold() in MISSING else cell[:64]


def _value_with_comma(cell: str) -> int | float | str | None:
    return _value(cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell) else cell)
