"""Whether the commas within a log's numbers are decimal ones: decided once for the log, never number by number."""

from __future__ import annotations

import re

from rmetric.importers.csv_cells import BOTH_MARKS, DECIMAL_COMMA, DECIMAL_POINT, THOUSANDS

_NUMBER = re.compile(r"(?<![\w.,:/-])[-+]?\d[\d.,]*\d(?:[eE][-+]?\d+)?")
"""A number in a line, and not the ``00,123`` of a time or a part of a date."""


class DecimalMarks:
    """What stands before the decimals in the lines of a log.

    >>> marks = DecimalMarks()
    >>> marks.add("step 1,000 loss 10,00377")
    >>> marks.are_commas
    True
    """

    def __init__(self) -> None:
        self._points = self._commas = False

    def add(self, line: str) -> None:
        """Another line; one with a decimal point settles it."""
        if not self._points:
            marks = set(map(_mark, _NUMBER.findall(line)))
            self._points, self._commas = "." in marks, self._commas or "," in marks

    @property
    def are_commas(self) -> bool:
        """True if a comma can only be a decimal one somewhere, and no point is."""
        return self._commas and not self._points


def _mark(number: str) -> str:
    """The decimal mark of a number, empty if it has none or leaves doubt."""
    if DECIMAL_POINT.fullmatch(number) or BOTH_MARKS[","].fullmatch(number):
        return "."
    if BOTH_MARKS["."].fullmatch(number):
        return ","
    return "," if DECIMAL_COMMA.fullmatch(number) and not THOUSANDS[","].fullmatch(number) else ""


def with_points(line: str) -> str:
    """A line with points instead of its decimal commas.

    >>> with_points("step 7, loss 1.234,5, lr 0,001, betas 0,9,0,95")
    'step 7, loss 1234.5, lr 0.001, betas 0,9,0,95'
    """
    return _NUMBER.sub(lambda found: _with_point(found[0]), line)


def _with_point(number: str) -> str:
    has_comma = DECIMAL_COMMA.fullmatch(number) or BOTH_MARKS["."].fullmatch(number)
    return number.replace(".", "").replace(",", ".") if has_comma else number
