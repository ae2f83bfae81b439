"""Long tables, a row a number: ``metric,step,value``; and tables of one number, which the file is named after."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from rmetric.importers.base import FieldMap, plain
from rmetric.importers.columns import Row, Rows, as_number
from rmetric.importers.names import meanings, names_step
from rmetric.log_reader import OnDamage

MOST_SORTED = 500_000
"""Rows that are put into the order of their steps: most such tables hold one metric after the other."""
LOOKED_AT = 64
_METRIC = ("metric", "metric_name", "name", "tag", "key", "variable")
_VALUE = ("value", "values", "metric_value")


def widened(path: Path, read: Rows, fields: FieldMap) -> Rows:
    """``read`` itself, or what reads a long table with each value under the name of its metric.

    A table without names of metrics, such as ``Wall time,Step,Value``, has its value under the name of the file, if
    that says what it is.
    """
    for row in itertools.islice(read(_ignore), LOOKED_AT):
        value, metric, step = _columns(row, fields)
        if value and step and (metric or meanings(path.stem, fields)):
            return partial(_wide, read, value, metric, step, path.stem)
    return read


def _columns(row: Row, fields: FieldMap) -> tuple[str, str, str]:
    """Names of the columns of the value, its metric and its step; empty where there is none."""
    names = {plain(name): name for name in row.values if name not in fields.taken}
    value = next((names[name] for name in _VALUE if name in names), "")
    metric = next((names[name] for name in _METRIC if name in names and isinstance(row.values[names[name]], str)), "")
    return value, metric, next((name for name in row.values if names_step(name, fields)), "")


def _wide(read: Rows, value: str, metric: str, step: str, title: str, on_damage: OnDamage) -> Iterator[Row]:
    rows = _renamed(read(on_damage), value, metric, title)
    first = list(itertools.islice(rows, MOST_SORTED))
    if metric and all(as_number(row.values.get(step)) is not None for row in first):
        first.sort(key=lambda row: as_number(row.values[step]) or 0)
    return itertools.chain(first, rows)


def _renamed(rows: Iterator[Row], value: str, metric: str, title: str) -> Iterator[Row]:
    for row in rows:
        name = row.values.pop(metric, None) if metric else title
        if isinstance(name, str) and value in row.values:
            row.values[name] = row.values.pop(value)
        yield row


def _ignore(line: int, message: str) -> None:
    """Pass over damage before the log is read."""
