"""Tables in text: a line of names, then lines of as many cells, with blanks, tabs or bars between."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rmetric.importers.base import FieldMap
from rmetric.importers.csv_cells import reader_of, with_lists
from rmetric.importers.line_wording import BARS, VERTICALS
from rmetric.importers.names import LINE_NUMBER, TOTAL, means_loss, names_counter
from rmetric.importers.steps import with_total

LONGEST_HEADER = 2_000
_GAPS, _BLANKS = re.compile(r" *\t *|\s{2,}"), re.compile(r"\s+")
_SHOWN = re.compile(r"\S+(?:\s\S+)*")
"""A cell between gaps."""
_VALUE = re.compile(r"[:=](?![A-Za-z])|(?:^|\s)[-+]?\d")
"""What a name of a column has not."""
_OF_TWO_LINES = {"since last": "loss", "example counter": "step"}
"""Names of columns of Vowpal Wabbit, beside the mean over all so far: the loss since the row before, and its place."""
_WEIGHT, _HELD_OUT = "example weight", "h"
"""Another one of its columns, and what it puts behind a row of examples that are held out."""
_value_of = reader_of(",")


class TextTable:
    """The latest table of a text.

    Of a row with a cell left empty, or with the number that pandas puts before it, each cell belongs to the name above.

    >>> table = TextTable(FieldMap({}))
    >>> table.begins("epoch     train_loss  valid_loss  time"), table.begins("the loss is  high")
    (True, False)
    >>> table.row("0         2.500000    2.700000    00:12")
    {'epoch': 0, 'train_loss': 2.5, 'valid_loss': 2.7, 'time': '00:12'}
    >>> table.begins("# step loss"), table.row("20 2.5"), table.row("20 steps")
    (True, {'step': 20, 'loss': 2.5}, {})
    """

    def __init__(self, fields: FieldMap) -> None:
        self._fields = fields
        self._names: list[str] = []
        self._repeats = False
        """Whether the names stand above the next row once more."""
        self._losses: list[int] = []
        self._between = _GAPS
        self._places: list[tuple[int, int]] = []
        """Begin and end of each name."""
        self._above: list[str] = []
        """Cells of the line before, of which a header of two lines begins."""

    def begins(self, line: str) -> bool:
        """Whether a line names columns, a loss and a counter among them; its table is then the latest.

        The names may stand in two lines, one below the other.
        """
        above, self._above = self._above, []
        if len(line) > LONGEST_HEADER:
            return False
        between = BARS if BARS.search(line) else _BLANKS
        names = self._above = _cells(line, between)
        joined = [" ".join(pair).strip() for pair in zip(above, names, strict=False)]
        joined = [_OF_TWO_LINES.get(name, name) for name in joined] if len(above) == len(names) else []
        if between is BARS:
            return self._is_begun(names, BARS) or self._is_begun(joined, BARS)
        is_begun = any(self._is_begun(_cells(line.lstrip("# "), apart), apart) for apart in (_GAPS, _BLANKS))
        is_begun = is_begun or self._is_begun(joined, _BLANKS)
        if is_begun:
            self._places = [found.span() for found in _SHOWN.finditer(line.rstrip())]
        return is_begun

    def _is_begun(self, names: list[str], between: re.Pattern[str]) -> bool:
        if len(names) < 2 or any(not name or _VALUE.search(name) for name in names):
            return False
        losses = [place for place, name in enumerate(names) if means_loss(name, self._fields)]
        if not losses or not any(name == LINE_NUMBER or names_counter(name, self._fields) for name in names):
            return False
        self._repeats = names == self._names
        self._names, self._losses, self._between = names, losses, between
        return True

    def row(self, line: str) -> dict[str, Any]:
        """The row that a line is; empty if it is none. With single blanks between names, all cells are numbers."""
        if not self._names or len(line) > LONGEST_HEADER:
            return {}
        cells = _cells(line, self._between)
        is_held_out = cells[-1:] == [_HELD_OUT] and _WEIGHT in self._names
        cells = cells[:-1] if is_held_out else cells
        if len(cells) != len(self._names):
            cells = self._fitted(line, cells) if self._between is _GAPS else []
        if not cells:
            return {}
        if self._between is _BLANKS and not all(map(_is_number, map(_value_of, cells))):
            return {}
        found = values_of(with_lists(self._names, cells))
        if any(isinstance(found[name], str) for name in found if names_counter(name, self._fields)):
            return {}  # another table's row
        names = [self._names[place] for place in self._losses]
        losses = [found.get(name, found.get(f"{name}[0]")) for name in names]
        if not any(map(_is_number, losses)) or any(isinstance(loss, str) for loss in losses):
            return {}
        return (
            {f"validation {name}" if name in names else name: found[name] for name in found} if is_held_out else found
        )

    def is_first(self, row: dict[str, Any]) -> bool:
        """Whether a row is the first below names that stand there once more; to be asked once of each row."""
        repeats = self._repeats and bool(row)
        self._repeats &= not repeats
        return repeats

    def _fitted(self, line: str, cells: list[str]) -> list[str]:
        """A cell for each name, of a line that has more or fewer; none in doubt.

        What stands behind all names is left out, and so is the number that pandas puts before them.
        """
        has_number = len(line) - len(line.lstrip()) + len(cells[0].split(" ")[0]) <= self._places[0][0]
        if len(cells) > len(self._names):
            return cells[has_number:][: len(self._names)]
        close = line.split()[has_number:]  # a number that fills its column leaves one blank before it
        if len(close) == len(self._names) and not any(isinstance(_value_of(cell), str) for cell in close):
            return close
        placed = dict[int, str]()
        for found in [*_SHOWN.finditer(line.rstrip())][has_number:]:
            begin, end = found.span()
            above = [place for place, (start, stop) in enumerate(self._places) if begin < stop and start < end]
            if len(above) != 1 or above[0] in placed:
                return []
            placed[above[0]] = found[0]
        return [placed.get(place, "") for place in range(len(self._names))]


def values_of(cells: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Values under the names of their cells.

    >>> values_of([("epoch", "3/100"), ("loss", "2.5")])
    {'epoch': 3, 'epoch of': 100, 'loss': 2.5}
    """
    found: dict[str, Any] = {}
    for name, cell in cells:
        if counted := with_total(cell):
            found[name], found[name + TOTAL] = counted
        else:
            found[name] = _value_of(cell)
    return found


def _cells(line: str, between: re.Pattern[str]) -> list[str]:
    if between is BARS:
        return [cell.strip() for cell in BARS.split(line.strip().strip(VERTICALS))]
    return between.split(line.strip())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)
