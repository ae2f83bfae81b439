"""Long tables, a row a number: ``metric,step,value``; tables of one number, which the file is named after; and those
with a column a run: ``Step,first - loss,second - loss``, as W&B exports a chart.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path

from rmetric.importers.base import CACHED, LOOKED_AT, FieldMap, plain
from rmetric.importers.names import meanings, means_loss, names_step
from rmetric.importers.rows import Row, Rows, as_number
from rmetric.importers.run_column import OF_HEADER
from rmetric.log_lines import OnDamage, passed_over

MOST_SORTED = 500_000
"""Rows that are put into the order of their steps: most such tables hold one metric after the other."""
_METRIC = ("metric", "metric_name", "name", "tag", "key", "variable")
_VALUE = ("value", "values", "metric_value")
_OF_RUN = re.compile(r"(.+) - (\S.*)")
_SPREAD = ("__MIN", "__MAX")
"""Endings of columns of W&B beside each that is shown: the range of the steps that it stands for."""


def widened(path: Path, read: Rows, fields: FieldMap) -> Rows:
    """``read`` itself, or what reads a long table with each value under the name of its metric.

    A table without names of metrics, such as ``Wall time,Step,Value``, has its value under the name of the file, if
    that says what it is. One with a column a run has a row a run.
    """
    for row in itertools.islice(read(passed_over), LOOKED_AT):
        if columns := _columns_of_runs(row, fields):
            return partial(_row_a_run, read, columns)
        value, metric, step = _columns(row, fields)
        if value and step and (metric or meanings(path.stem, fields)):
            return partial(_wide, read, value, metric, step, path.stem)
    return read


def _columns_of_runs(row: Row, fields: FieldMap) -> dict[str, tuple[str, str]]:
    """Column → its run and its metric, where several runs have the same loss."""
    named = {name: parts for name in row.values if (parts := _of_run(name)) and not name.endswith(_SPREAD)}
    losses = [metric for _, metric in named.values() if means_loss(metric, fields)]
    return named if len(losses) > len({*losses}) else {}


@lru_cache(CACHED)
def _of_run(name: str) -> tuple[str, str] | None:
    """The run that a column names, and the metric."""
    match = _OF_RUN.fullmatch(name)
    return None if match is None else (match[1], match[2])


def _row_a_run(read: Rows, columns: dict[str, tuple[str, str]], on_damage: OnDamage) -> Iterator[Row]:
    for row in read(on_damage):
        shared = {name: value for name, value in row.values.items() if _of_run(name) is None}
        of_runs: dict[str, dict[str, object]] = {}
        for name, (run, metric) in columns.items():
            if row.values.get(name) is not None:
                of_runs.setdefault(run, {})[metric] = row.values[name]
        yield from (Row(row.line, {**shared, OF_HEADER: run, **values}) for run, values in of_runs.items())


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
