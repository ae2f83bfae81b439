"""Losses that are left empty, as many writers leave NaN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

KNOWN, LASTING = 20, 20
"""Rows with a loss before, and rows in a row without one, from which on an empty loss is taken for NaN."""
RARE = 20
"""Rows with a loss for each that was empty before, at least: a column that is seldom filled says nothing by a gap."""


class EmptyLosses:
    """Looks for a training loss that was in nearly every row, and is null or an empty cell from some row on.

    ``orjson``, JavaScript and the tables of pandas write NaN that way. A row counts that says nothing beyond what the
    latest one with a loss said: others are evaluations, or learning rates in rows of their own.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._latest: Mapping[str, Any] = {}
        self._known = self._passed = self.lasting = 0
        """``lasting``: rows in a row without a loss, by now."""

    def is_nan(self, row: Mapping[str, Any], has_loss: bool) -> bool:
        """Whether the next row, by the log's names, has an empty loss that stands for NaN."""
        if has_loss:
            self._passed += self.lasting
            self._known, self.lasting, self._latest = self._known + 1, 0, row
            return False
        if not self._lacks_it(row):
            return False
        self.lasting += 1
        return self.lasting >= LASTING and self._known >= max(KNOWN, RARE * self._passed)

    def _lacks_it(self, row: Mapping[str, Any]) -> bool:
        empty = any(name in row and row[name] is None for name in self._columns)
        return empty and all(value is None or self._latest.get(name) is not None for name, value in row.items())
