"""Folders of DVCLive: a table a metric, ``plots/metrics/train/loss.tsv``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from rmetric.batches import NumberedEvent
from rmetric.errors import UserError
from rmetric.importers.base import FieldMap, register_importer
from rmetric.importers.csv_table import csv_rows
from rmetric.importers.names import meanings
from rmetric.importers.rows import as_number, names_in_words
from rmetric.importers.series import Point, imported_series
from rmetric.log_lines import OnDamage


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
            f"{path} has no metric of use in plots/metrics ({names_in_words(tables) or 'no tables'}); "
            "name one with --map training_loss=METRIC"
        )
    return imported_series(path, partial(_points, useful), mapping, on_damage, path.stem)


def metric_tables(folder: Path) -> dict[str, Path]:
    """The tables of a folder by the names of their metrics; empty if it is none of DVCLive."""
    place = folder / "plots" / "metrics"
    files = sorted(file for file in place.rglob("*.tsv") if file.is_file())
    return {file.relative_to(place).with_suffix("").as_posix(): file for file in files}


def _points(tables: Mapping[str, Path], on_damage: OnDamage) -> Iterator[Point]:
    """The rows of all tables; the value is in the last column. Nothing but the step says when one was logged."""
    for name, file in tables.items():
        for row in csv_rows(file, {}, on_damage):
            step = as_number(row.values.get("step"))
            if step is not None:
                yield Point(name, row.line, step, step, step, [*row.values.values()][-1])
