"""Folders of DVCLive: a table a metric, ``plots/metrics/train/loss.tsv``."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from rmetric.errors import UserError
from rmetric.importers.base import FieldMap, register_importer
from rmetric.importers.csv_table import csv_rows
from rmetric.importers.names import meanings
from rmetric.importers.rows import Row, as_number, in_words
from rmetric.importers.tables import imported
from rmetric.log_reader import NumberedEvent, OnDamage

MOST_TABLES = 64
"""Tables that are read side by side."""


@register_importer("dvclive")
def read_dvclive(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """The tables of a folder, each with a step and a value, as one run; the line is that of a table.

    The folder's ``metrics.json`` is not read: it has the last values alone. Raises :class:`UserError` if no table is
    named after a measurement of ours.
    """
    fields, tables = FieldMap(mapping), metric_tables(path)
    useful = {name: file for name, file in tables.items() if meanings(name, fields)}
    if not useful:
        raise UserError(
            f"{path} has no metric of use in plots/metrics ({in_words(tables) or 'no tables'}); "
            "name one with --map training_loss=METRIC"
        )
    if len(useful) > MOST_TABLES:
        on_damage(1, f"{path} has more than {MOST_TABLES} metrics of use; the rest is left out")
    return imported(path, partial(_rows, dict([*useful.items()][:MOST_TABLES])), mapping, on_damage)


def metric_tables(folder: Path) -> dict[str, Path]:
    """The tables of a folder by the names of their metrics; empty if it is none of DVCLive."""
    place = folder / "plots" / "metrics"
    files = sorted(file for file in place.rglob("*.tsv") if file.is_file())
    return {file.relative_to(place).with_suffix("").as_posix(): file for file in files}


def _rows(tables: Mapping[str, Path], on_damage: OnDamage) -> Iterator[Row]:
    points = heapq.merge(*(_points(name, file, on_damage) for name, file in tables.items()), key=itemgetter(0))
    for step, same in groupby(points, key=itemgetter(0)):
        row = Row(1, {"step": step})
        for _, name, line, value in same:
            row.line = line
            row.values[name] = value
        yield row


def _points(name: str, file: Path, on_damage: OnDamage) -> Iterator[tuple[int | float, str, int, Any]]:
    """Step, name, line and value of each row; the value is in the last column."""
    for row in csv_rows(file, {}, on_damage):
        step = as_number(row.values.get("step"))
        if step is not None:
            yield step, name, row.line, [*row.values.values()][-1]
