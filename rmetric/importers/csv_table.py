"""CSV (also with semicolons, tabs or bars): a header, then one record a row."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rmetric.errors import UserError
from rmetric.importers.base import FieldMap, merged, register_importer
from rmetric.log_reader import NumberedEvent, OnDamage, numbered_lines
from rmetric.measurements import in_convention
from rmetric.records import Event

DELIMITERS = (",", ";", "\t", "|")
MISSING = frozenset({"", "-", "--", "na", "n/a", "null", "none"})
"""Cells that mean: not measured. ``nan`` is not among them: a NaN that was written was measured."""


@register_importer("csv")
def read_csv(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """A table with a header, one row a line. Lines that begin with ``#`` are comments.

    An empty cell is *not measured*; ``nan`` and ``inf`` are *measured and not finite*. A row with another number of
    cells than the header is reported and left out. Raises :class:`UserError` if no column is the step.
    """
    return merged(_rows(path, mapping, on_damage))


def delimiter_of(header: str) -> str:
    """The delimiter that a header line has most of.

    >>> delimiter_of("step;loss;learning rate, initial")
    ';'
    """
    return max(DELIMITERS, key=header.count)


def _rows(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    lines = _lines(path, on_damage)
    number, header = next(lines, (0, ""))
    if not number:
        return
    delimiter = delimiter_of(header)
    names = [name.strip() for name in _cells(header, delimiter) or ()]
    columns = _columns(path, names, FieldMap(mapping), number, on_damage)
    step_column = columns.pop("step")
    chosen = list(columns.items())
    for number, text in lines:
        cells = _cells(text, delimiter)
        if cells is None or len(cells) != len(names):
            found = "an open quote" if cells is None else f"{len(cells)} cells"
            on_damage(number, f"{found} where {len(names)} cells are due; skipped")
            continue
        event: Event = {"step": _step(cells[step_column])}
        for our_name, column in chosen:
            value = _value(cells[column])
            if value is not None:
                event[our_name] = value
        yield number, event


def _columns(path: Path, names: list[str], fields: FieldMap, line: int, on_damage: OnDamage) -> dict[str, int]:
    """Our name → index of the column."""
    columns = fields.translate({name: index for index, name in reversed(list(enumerate(names)))})
    fields.report_unseen(line, on_damage)
    if "step" not in columns:
        shown = ", ".join(repr(name[:40]) for name in names[:12])
        raise UserError(f"{path} has no column for the step (its columns: {shown}); name it with --map step=COLUMN")
    if len(columns) == 1:
        shown = ", ".join(repr(name[:40]) for name in names[:12])
        raise UserError(f"{path} has no column of use (its columns: {shown}); name one with --map training_loss=COLUMN")
    return columns


def _lines(path: Path, on_damage: OnDamage) -> Iterator[tuple[int, str]]:
    """Numbered lines that are neither empty nor comments, without their line ends, in bounded memory."""
    for number, line in numbered_lines(path, on_damage):
        if line.startswith(b"#"):
            continue
        try:
            text = line.decode()
        except UnicodeDecodeError:
            on_damage(number, "not UTF-8; the bad bytes were replaced")
            text = line.decode(errors="replace")
        yield number, text.rstrip("\r\n")


def _cells(text: str, delimiter: str) -> list[str] | None:
    if '"' not in text:
        return text.split(delimiter)
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True))
    except (csv.Error, StopIteration):
        return None


def _step(cell: str) -> Any:
    try:
        return int(cell)
    except ValueError:
        pass
    try:
        return float(cell)
    except ValueError:
        return cell[:64]


def _value(cell: str) -> float | str | None:
    try:
        return in_convention(float(cell))
    except ValueError:
        return None if cell.strip().casefold() in MISSING else cell[:64]
