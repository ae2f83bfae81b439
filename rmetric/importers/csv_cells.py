"""What cells of a text table say: numbers with a comma or between thousands, gaps, a last one that was cut off."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence

from rmetric.importers.base import FieldMap
from rmetric.importers.names import names_counter
from rmetric.importers.spellings import DASHES, NOT_FINITE_ON_WINDOWS, NOT_MEASURED, OF_TYPE
from rmetric.log_lines import MAX_LINE_BYTES
from rmetric.measurements import in_convention

DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+(?:[eE][-+]?\d+)?\s*")
DECIMAL_POINT = re.compile(r"\s*[-+]?\d+\.\d+(?:[eE][-+]?\d+)?\s*")
THOUSANDS = {
    ",": re.compile(r"\s*[1-9]\d{0,2}(?:,\d{3})+\s*"),
    ".": re.compile(r"\s*[1-9]\d{0,2}(?:\.\d{3})+\s*"),
}
"""What stands between thousands → a whole number that has it."""
BOTH_MARKS = {
    ",": re.compile(r"\s*[-+]?[1-9]\d{0,2}(?:,\d{3})+\.\d+\s*"),
    ".": re.compile(r"\s*[-+]?[1-9]\d{0,2}(?:\.\d{3})+,\d+\s*"),
}
"""What stands between thousands → a number that has it and decimals as well, which leaves no doubt."""
_NOT_FINITE = re.compile(NOT_FINITE_ON_WINDOWS)
_MISSING = re.compile(rf"(?:{NOT_MEASURED}|{DASHES}|no log)?", re.IGNORECASE)
"""A cell that means: not measured; *No log* is of the Hugging Face Trainer's table."""
_OF_TYPE = re.compile(rf"\s*{OF_TYPE}(\[)?\s*([-+]?[\w.][-+\w.]*)(?(1)\s*\])\s*(?:,.*)?\)\s*")
_LIST = re.compile(r"\[[-+.\w,;\s]*\]")
JUDGED_NUMBERS, FEWER_DECIMALS = 10, 3
"""Numbers from which on, and decimals by which, a last one can be judged as cut off."""


def reader_of(delimiter: str) -> Callable[[str], int | float | str | None]:
    """What reads a cell."""
    return _value_with_comma if delimiter == ";" else _value


def with_lists(names: Sequence[str], cells: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Names and cells; of a cell with a list one for each place.

    >>> [*with_lists(["step", "loss", "norm"], ["1", "[0.5, 0.4]", "[1.5]"])]
    [('step', '1'), ('loss[0]', '0.5'), ('loss[1]', '0.4'), ('norm', '1.5')]
    """
    for name, cell in zip(names, cells, strict=True):
        parts = re.split(r"[,;\s]+", cell.strip()[1:-1].strip()) if _LIST.fullmatch(cell.strip()) else [cell]
        yield from ([(name, parts[0])] if len(parts) == 1 else [(f"{name}[{n}]", part) for n, part in enumerate(parts)])


def _value(cell: str) -> int | float | str | None:
    if "." not in cell:
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
    if typed := _OF_TYPE.fullmatch(cell):
        return _value(typed[2])
    for mark, pattern in BOTH_MARKS.items():
        if pattern.fullmatch(cell):
            return float(cell.replace(mark, "").replace(",", "."))
    return None if _MISSING.fullmatch(cell.strip()) else cell[:64]


def _value_with_comma(cell: str) -> int | float | str | None:
    return _value(cell.replace(",", ".") if DECIMAL_COMMA.fullmatch(cell) else cell)


class Counters:
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
            mark = next((mark for mark in marks if THOUSANDS[mark].fullmatch(cell)), None)
            if mark is not None:
                cells[column] = cell.replace(mark, "")
            elif DECIMAL_COMMA.fullmatch(cell) or DECIMAL_POINT.fullmatch(cell):
                self._columns.remove(column)

    def _marks(self, cells: list[str]) -> str:
        """What may stand between thousands: not what the other cells of the row have before their decimals."""
        if not self._may_have_decimal_commas:
            return ","
        others = [cells[column] for column in self._others]
        if any(map(DECIMAL_COMMA.fullmatch, others)):
            return "."
        return "," if any(map(DECIMAL_POINT.fullmatch, others)) else ",."


class LastDecimals:
    """Characters after the decimal point in the last number of a line, which tell a cut one from a short one.

    Most files without a last line end are whole. A last number counts as cut off only where it has fewer of these
    characters than all numbers before it, by :data:`FEWER_DECIMALS`.
    """

    def __init__(self) -> None:
        self._numbers = 0
        self._fewest = MAX_LINE_BYTES

    def add(self, cell: str) -> None:
        """The last cell, or word, of another line. Those that do not end in a digit, such as ``nan``, say nothing."""
        if cell[-1:].isdecimal():
            self._numbers += 1
            self._fewest = min(self._fewest, _decimals(cell))

    def are_cut(self, cell: str) -> bool:
        """Whether the last cell of a line without an end is the begin of a number."""
        is_number = self._numbers >= JUDGED_NUMBERS and cell.rstrip(".,")[-1:].isdecimal()
        return is_number and _decimals(cell) <= self._fewest - FEWER_DECIMALS


def _decimals(cell: str) -> int:
    mark = max(cell.rfind("."), cell.rfind(","))
    return len(cell) - 1 - mark if mark >= 0 else 0
