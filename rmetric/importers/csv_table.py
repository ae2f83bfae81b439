"""CSV (also with semicolons, tabs or bars): a header, then one record a row."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rmetric.importers.base import FieldMap, register_importer
from rmetric.importers.columns import Row
from rmetric.importers.names import names_counter
from rmetric.importers.pairs import NOT_FINITE_ON_WINDOWS
from rmetric.importers.tables import imported
from rmetric.log_reader import CUT_OFF, MAX_LINE_BYTES, NumberedEvent, OnDamage, numbered_lines
from rmetric.measurements import in_convention

_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+(?:[eE][-+]?\d+)?\s*")
_DECIMAL_POINT = re.compile(r"\s*[-+]?\d+\.\d+(?:[eE][-+]?\d+)?\s*")
_THOUSANDS = {
    ",": re.compile(r"\s*[1-9]\d{0,2}(?:,\d{3})+\s*"),
    ".": re.compile(r"\s*[1-9]\d{0,2}(?:\.\d{3})+\s*"),
}
"""What stands between thousands → a whole number that has it."""
_BOTH_MARKS = {
    ",": re.compile(r"\s*[-+]?[1-9]\d{0,2}(?:,\d{3})+\.\d+\s*"),
    ".": re.compile(r"\s*[-+]?[1-9]\d{0,2}(?:\.\d{3})+,\d+\s*"),
}
"""The same → a number with decimals as well, which leaves no doubt."""
_NOT_FINITE = re.compile(NOT_FINITE_ON_WINDOWS)
DELIMITERS = (",", ";", "\t", "|")
MISSING = frozenset({"", "-", "--", "na", "n/a", "null", "none"})
"""Cells that mean: not measured. ``nan`` is not among them: a NaN that was written was measured."""
JUDGED_NUMBERS, FEWER_DECIMALS = 10, 3
"""Numbers from which on, and decimals by which, a last one can be judged as cut off."""


@register_importer("csv")
def read_csv(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """A table with a header, one row a line. Lines that begin with ``#`` are comments.

    An empty cell is *not measured*; ``nan`` and ``inf`` are *measured and not finite*. Between semicolons ``2,5`` is
    two and a half, as spreadsheets of many countries write it; a step or an epoch may be ``"1,000"``, or ``1.000``
    beside such a number. A row with another number of cells than the header, and a last one whose last number was cut
    off, are reported and left out.
    """
    return imported(path, lambda report: csv_rows(path, mapping, report), mapping, on_damage)


def delimiter_of(header: str) -> str:
    """The delimiter that a header line has most of.

    >>> delimiter_of("step;loss;learning rate, initial")
    ';'
    """
    return max(DELIMITERS, key=header.count)


def row_values(line: str, delimiter: str) -> list[int | float | str | None] | None:
    """The cells of a line as values; ``None`` if a quote is open.

    >>> row_values('10;2,5;;"a; b"', ";")
    [10, 2.5, None, 'a; b']
    """
    cells = _cells(line, delimiter)
    return None if cells is None else [*map(_reader(delimiter), cells)]


def csv_rows(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[Row]:
    """The rows as they stand there."""
    lines = _lines(path, on_damage)
    _, header, _ = next(lines, (0, "", True))
    delimiter = delimiter_of(header)
    names = [name.strip() for name in _cells(header, delimiter) or ()]
    value_of = _reader(delimiter)
    counters, decimals = _Counters(names, FieldMap(mapping), delimiter), _LastDecimals()
    for number, text, is_whole in lines:
        cells = _cells(text, delimiter)
        if cells is None or len(cells) != len(names):
            found = "an open quote" if cells is None else f"{len(cells)} cells"
            on_damage(number, f"{found} where {len(names)} cells are due; skipped")
            continue
        counters.join_thousands(cells)
        if not is_whole and decimals.are_cut(cells[-1]):
            on_damage(number, CUT_OFF)
            continue
        decimals.add(cells[-1])
        yield Row(number, {name: value_of(cell) for name, cell in zip(names, cells, strict=True)})


class _Counters:
    """The columns of steps and epochs: whole numbers, in which ``1,000`` or ``1.000`` may be a thousand.

    A column that has held a fraction, such as epochs of 0.25, holds no thousands from there on.
    """

    def __init__(self, names: Sequence[str], fields: FieldMap, delimiter: str) -> None:
        self._columns, self._others = set[int](), list[int]()
        for column, name in enumerate(names):
            (self._columns.add if names_counter(name, fields) else self._others.append)(column)
        self._may_have_decimal_commas = delimiter == ";"

    def join_thousands(self, cells: list[str]) -> None:
        """Take out what stands between the thousands of a row's counters."""
        marked = [column for column in self._columns if "," in cells[column] or "." in cells[column]]
        marks = self._marks(cells) if marked else ""
        for column in marked:
            cell = cells[column]
            mark = next((mark for mark in marks if _THOUSANDS[mark].fullmatch(cell)), None)
            if mark is not None:
                cells[column] = cell.replace(mark, "")
            elif _DECIMAL_COMMA.fullmatch(cell) or _DECIMAL_POINT.fullmatch(cell):
                self._columns.remove(column)

    def _marks(self, cells: list[str]) -> str:
        """What may stand between thousands: not what the other cells of the row have before their decimals."""
        if not self._may_have_decimal_commas:
            return ","
        others = [cells[column] for column in self._others]
        if any(map(_DECIMAL_COMMA.fullmatch, others)):
            return "."
        return "," if any(map(_DECIMAL_POINT.fullmatch, others)) else ",."


class _LastDecimals:
    """Characters after the decimal point in the last column, which tell a number that was cut off from a short one.

    Most tables without a last line end are whole. A last number counts as cut off only where all numbers before it have
    equally many of these characters, and it has fewer by :data:`FEWER_DECIMALS`.
    """

    def __init__(self) -> None:
        self._numbers = 0
        self._fewest, self._most = MAX_LINE_BYTES, 0

    def add(self, cell: str) -> None:
        """The last cell of another row. Cells that do not end in a digit, such as ``nan``, say nothing."""
        if cell[-1:].isdecimal():
            count = _decimals(cell)
            self._numbers += 1
            self._fewest, self._most = min(self._fewest, count), max(self._most, count)

    def are_cut(self, cell: str) -> bool:
        """Whether the last cell of a line without an end is the begin of a number."""
        is_constant = self._numbers >= JUDGED_NUMBERS and self._fewest == self._most
        return is_constant and cell.rstrip(".,")[-1:].isdecimal() and _decimals(cell) <= self._fewest - FEWER_DECIMALS


def _decimals(cell: str) -> int:
    mark = max(cell.rfind("."), cell.rfind(","))
    return len(cell) - 1 - mark if mark >= 0 else 0


def _lines(path: Path, on_damage: OnDamage) -> Iterator[tuple[int, str, bool]]:
    """Numbered lines that are neither empty nor comments, without their line ends, and whether they had one."""
    for number, line in numbered_lines(path, on_damage):
        if line.startswith(b"#"):
            continue
        try:
            text = line.decode()
        except UnicodeDecodeError:
            on_damage(number, "not UTF-8; the bad bytes were replaced")
            text = line.decode(errors="replace")
        yield number, text.rstrip("\r\n"), line.endswith(b"\n")


def _cells(text: str, delimiter: str) -> list[str] | None:
    if '"' not in text:
        return text.split(delimiter)
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True))
    except (csv.Error, StopIteration):
        return None


def _reader(delimiter: str) -> Callable[[str], int | float | str | None]:
    """What reads a cell."""
    return _value_with_comma if delimiter == ";" else _value


def _value(cell: str) -> int | float | str | None:
    try:
        return int(cell)
    except ValueError:
        pass
    try:
        return in_convention(float(cell))
    except ValueError:
        pass
    if _NOT_FINITE.fullmatch(cell.strip()):
        return math.inf
    for mark, pattern in _BOTH_MARKS.items():
        if pattern.fullmatch(cell):
            return float(cell.replace(mark, "").replace(",", "."))
    return None if cell.strip().casefold() in MISSING else cell[:64]


def _value_with_comma(cell: str) -> int | float | str | None:
    return _value(cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell) else cell)
