"""Tables in text: a line of names, then lines of as many cells, with blanks, tabs or bars between."""

from __future__ import annotations

import re
from typing import Any

from rmetric.importers.base import FieldMap
from rmetric.importers.csv_cells import reader_of
from rmetric.importers.names import meanings, names_counter
from rmetric.importers.steps import TOTAL

LONGEST_HEADER = 2_000
_BARS = re.compile(r"[|│┃]")
_GAPS = re.compile(r"\t|\s{2,}")
_VALUE = re.compile(r"[:=]|(?:^|\s)[-+]?\d")
"""What a name of a column has not."""
_OF_TOTAL = re.compile(r"(\d{1,18})/(\d{1,18})")
_LOSSES = ("training_loss", "validation_loss")
_value_of = reader_of(",")


class TextTable:
    """The latest table of a text.

    >>> table = TextTable(FieldMap({}))
    >>> table.begins("epoch     train_loss  valid_loss  time"), table.begins("the loss is  high")
    (True, False)
    >>> table.row("0         2.500000    2.700000    00:12")
    {'epoch': 0, 'train_loss': 2.5, 'valid_loss': 2.7, 'time': '00:12'}
    """

    def __init__(self, fields: FieldMap) -> None:
        self._fields = fields
        self._names: list[str] = []
        self._losses: list[int] = []
        self._has_bars = False

    def begins(self, line: str) -> bool:
        """Whether a line names columns, a loss and a counter among them; its table is then the latest."""
        if len(line) > LONGEST_HEADER:
            return False
        has_bars = _BARS.search(line) is not None
        names = _cells(line, has_bars)
        if len(names) < 2 or any(not name or _VALUE.search(name) for name in names):
            return False
        losses = [place for place, name in enumerate(names) if self._is_loss(name)]
        if not losses or not any(names_counter(name, self._fields) for name in names):
            return False
        self._names, self._losses, self._has_bars = names, losses, has_bars
        return True

    def row(self, line: str) -> dict[str, Any]:
        """The row that a line is; empty if it is none."""
        if not self._names or len(line) > LONGEST_HEADER:
            return {}
        cells = _cells(line, self._has_bars)
        if len(cells) < len(self._names) or (self._has_bars and len(cells) > len(self._names)):
            return {}
        found: dict[str, Any] = {}
        for name, cell in zip(self._names, cells, strict=False):
            counted = _OF_TOTAL.fullmatch(cell)
            if counted:
                found[name], found[name + TOTAL] = int(counted[1]), int(counted[2])
            else:
                found[name] = _value_of(cell)
        losses = [found[self._names[place]] for place in self._losses]
        return found if any(map(_is_number, losses)) and not any(isinstance(loss, str) for loss in losses) else {}

    def _is_loss(self, name: str) -> bool:
        return any(ours in _LOSSES for ours, _ in meanings(name, self._fields))


def _cells(line: str, has_bars: bool) -> list[str]:
    if has_bars:
        return [cell.strip() for cell in _BARS.split(line.strip().strip("|│┃"))]
    return _GAPS.split(line.strip())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)
