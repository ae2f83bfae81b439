"""Logs whose lines can be read without the others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rmetric.files import is_utf_16
from rmetric.importers.base import FieldMap
from rmetric.importers.column_choice import chosen
from rmetric.importers.csv_table import csv_rows
from rmetric.importers.jsonl import jsonl_rows
from rmetric.importers.rows import Row
from rmetric.importers.run_column import RunColumn
from rmetric.importers.survey import Survey
from rmetric.log_lines import passed_over
from rmetric.measurements import LOSSES


@dataclass(frozen=True)
class LoneLines:
    """Lines of a log, each of which means the same without the others (of a table: but for its header)."""

    format: str
    mapping: Mapping[str, str]
    losses: tuple[str, ...] = ()
    evaluations: tuple[str, ...] = ()
    """Their names of the training loss and of the validation loss."""

    @classmethod
    def of(cls, path: Path, name: str, mapping: Mapping[str, str]) -> LoneLines | None:
        """Lines of a log of the format ``name``; ``None`` where they do not stand alone.

        They do not where steps are missing, where several columns might be the loss, or where the rows are of several
        runs. What is left empty is looked for portion by portion.
        """
        if name == "rmetric":
            return cls(name, mapping)
        if name not in ("csv", "jsonl") or is_utf_16(path):  # a line feed is two bytes there
            return None
        rows, fields = partial(_rows, path, name, mapping), FieldMap(mapping)
        survey = Survey.of(rows())
        columns = chosen(survey, fields)
        if not columns.are_plain or RunColumn.of(rows, survey.seen, fields) is not None:
            return None
        names = (columns.fields.get(ours, ()) for ours in LOSSES)
        return cls(name, mapping, *names)

    def go_on_in(self, path: Path) -> bool:
        """Whether further lines stand alone: others tell what an empty loss means, or a validation loss of NaN."""
        return self.format == "rmetric" or not any(map(self._has_gap, _rows(path, self.format, self.mapping)))

    def _has_gap(self, row: Row) -> bool:
        evaluated = [row.values[name] for name in self.evaluations if row.values.get(name) is not None]
        if any(isinstance(value, float) and not math.isfinite(value) for value in evaluated):
            return True
        return not evaluated and any(row.values.get(name, math.nan) is None for name in self.losses)


def _rows(path: Path, name: str, mapping: Mapping[str, str]) -> Iterator[Row]:
    return csv_rows(path, mapping, passed_over) if name == "csv" else jsonl_rows(path, mapping, passed_over)
