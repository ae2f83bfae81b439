"""Logs whose lines can be read without the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from rmetric.files import is_utf_16
from rmetric.importers.base import FieldMap
from rmetric.importers.columns import Columns, Row, Survey
from rmetric.importers.csv_table import csv_rows
from rmetric.importers.jsonl import jsonl_rows
from rmetric.importers.run_column import RunColumn


def lines_stand_alone(path: Path, name: str, mapping: Mapping[str, str]) -> bool:
    """Whether what a line of a log means does not depend on other lines (of a table: but for its header).

    It does where steps are missing, where several columns might be the loss, or where the rows are of several runs.
    """
    if name == "rmetric":
        return True
    if name not in ("csv", "jsonl") or is_utf_16(path):  # a line feed is two bytes there
        return False
    rows, fields = partial(_rows, path, name, mapping), FieldMap(mapping)
    survey = Survey.of(rows())
    return Columns.chosen(survey, fields).are_plain and RunColumn.of(rows, survey.seen, fields) is None


def _rows(path: Path, name: str, mapping: Mapping[str, str]) -> Iterator[Row]:
    return csv_rows(path, mapping, _ignore) if name == "csv" else jsonl_rows(path, mapping, _ignore)


def _ignore(line: int, message: str) -> None:
    """Pass over damage, of which the reader of the log tells."""
