"""A file that is one JSON value: lists of numbers side by side, or of records, as scripts write them at their end."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from rmetric.batches import NumberedEvent
from rmetric.errors import UserError
from rmetric.files import opened_as_utf8
from rmetric.importers.base import MAX_DEPTH, UNMAPPED, flattened, register_importer
from rmetric.importers.names import LINE_NUMBER, measures_loss, names_epoch, names_step
from rmetric.importers.rows import Row, as_number, names_in_words
from rmetric.importers.tables import imported
from rmetric.log_lines import OnDamage, loosely_parsed

MAX_BYTES = 1 << 26
_NUMBERED = re.compile(r"\D*(\d{1,18})")
"""``"3"`` or ``epoch_3``: the key of a record among others."""
_ROW = re.compile(r"\d{1,18}")


@register_importer("json")
def read_json(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """An object that holds lists of numbers, lists of records or records by number, a loss among them; or one record.

    Lists as long as the longest of the losses are columns, such as those of Keras's ``history``. Records are put in the
    order of their counter; those of a list that is named after a split, such as ``val``, are of that one. The file is
    read as a whole. Raises :class:`UserError` if it is no JSON value, or has more than 64 MiB.
    """
    document = document_in(path)
    if document is None:
        raise UserError(f"{path} is not a JSON value of at most {MAX_BYTES >> 20} MiB; write one object a line")
    records, left_out = _table(document)

    def rows(report: OnDamage) -> Iterator[Row]:
        if left_out:
            report(1, f"lists of another length are left out ({names_in_words(left_out)})")
        return (Row(number, {**record}) for number, record in enumerate(records, 1))

    return imported(path, rows, mapping, on_damage)


def document_in(path: Path) -> Any:
    """JSON value of a whole file; ``None`` if it is no JSON, or too long."""
    with opened_as_utf8(path) as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        return None
    try:
        return json_value(text)
    except (ValueError, RecursionError):
        return None


def json_value(text: str | bytes) -> Any:
    """The value of a JSON text, as strict as it may be or with NaN; raises ``ValueError`` if it is none."""
    try:
        return orjson.loads(text)
    except ValueError:
        return loosely_parsed(text)  # five times as slow


def holds_table(document: Any) -> bool:
    """Whether a JSON value is more than one record.

    >>> [holds_table(value) for value in ({"loss": [2.5, 2.4]}, [{"loss": 2.5}], {"loss": 2.5})]
    [True, False, False]
    """
    document = _in_rows(document)
    return isinstance(document, dict) and (bool(_columns(flattened(document))) or any(_records(document)))


def _table(document: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The records, and the names of lists that are none of their columns."""
    document = _in_rows(document)
    flat = flattened(document) if isinstance(document, dict) else {}
    left_out: list[str] = []
    if columns := _columns(flat):
        left_out = [name for name in flat if isinstance(flat[name], list) and name not in columns]
        records = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    else:
        records = [*_records(document)] or [flat]
    counts = [[_count(record, names) for record in records] for names in _KINDS]
    places = [*zip(*(count for count in counts if None not in count), strict=True)] or [()] * len(records)
    return [records[at] for at in sorted(range(len(records)), key=places.__getitem__)], left_out


def _in_rows(document: Any) -> Any:
    """A document in which columns are lists, and curves are records."""
    return _with_records(_with_lists(document))


def _with_lists(document: Any) -> Any:
    """An object of columns by row, as ``DataFrame.to_json`` writes it, with lists in their place.

    >>> _with_lists({"step": {"0": 10, "1": 20}, "loss": {"0": 2.5, "1": 2.4}})
    {'step': [10, 20], 'loss': [2.5, 2.4]}
    """
    columns = [*document.values()] if isinstance(document, dict) else []
    if not columns or not all(isinstance(column, dict) and len(column) > 1 for column in columns):
        return document
    rows = [*columns[0]]
    if not all(map(_ROW.fullmatch, rows)) or any([*column] != rows for column in columns):
        return document
    if any(isinstance(value, dict | list) for column in columns for value in column.values()):
        return document
    numbers = {} if rows == [*map(str, range(len(rows)))] else {LINE_NUMBER: [*map(int, rows)]}
    return numbers | {name: [*column.values()] for name, column in document.items()}


def _with_records(document: Any) -> Any:
    """An object of curves, each a list of steps beside one of values, with their records in place.

    >>> curves = {"loss": {"steps": [10, 20], "values": [2.5, 2.4]}, "val_loss": {"steps": [20], "values": [2.6]}}
    >>> _with_records(curves)
    {'': [{'step': 10, 'loss': 2.5}, {'step': 20, 'loss': 2.4, 'val_loss': 2.6}]}
    """
    records = joined(_points(document)) if isinstance(document, dict) else []
    return {"": records} if records else document


def _points(document: Mapping[str, Any]) -> Iterator[StepValue]:
    for name, curve in document.items():
        steps, values = (curve.get("steps"), curve.get("values")) if isinstance(curve, dict) else (None, None)
        if type(steps) is list and type(values) is list:
            yield from ((name, as_number(step), value) for step, value in zip(steps, values, strict=False))


StepValue = tuple[str, int | float | None, Any]
"""Name, step and value."""


def joined(values: Iterable[StepValue]) -> list[dict[str, Any]]:
    """Values as records, in the order of their steps; those without a step are left out."""
    records: dict[int | float, dict[str, Any]] = {}
    for name, step, value in values:
        if step is not None:
            records.setdefault(step, {"step": step})[name] = value
    return [records[step] for step in sorted(records)]


def _columns(flat: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Lists of numbers, as long as the longest of the losses."""
    is_single = any(measures_loss(name) and type(value) is not list for name, value in flat.items())
    lists = {name: value for name, value in flat.items() if type(value) is list and len(value) > is_single}
    tables = {
        name: value for name, value in lists.items() if all(isinstance(item, int | float | None) for item in value)
    }
    length = max((len(value) for name, value in tables.items() if measures_loss(name)), default=0)
    return {name: value for name, value in tables.items() if len(value) == length}


def _records(value: Any, name: str = "", depth: int = 0) -> Iterator[dict[str, Any]]:
    """The records of all lists of records, and of all objects by number, that have a loss."""
    numbered: list[tuple[int | None, Any]] = []
    if isinstance(value, list):
        numbered = [(None, record) for record in value]
    elif isinstance(value, dict):
        keys = [_NUMBERED.fullmatch(key) for key in value]
        numbered = [(int(key[1]) if key else None, record) for key, record in zip(keys, value.values(), strict=True)]
        if None in keys or len(keys) < 2:
            for key, inner in value.items() if depth < MAX_DEPTH else ():
                yield from _records(inner, key, depth + 1)
            return
    flat = [(number, flattened(record)) for number, record in numbered if isinstance(record, dict)]
    if not any(measures_loss(key) for _, record in flat for key in record):
        return
    for number, record in flat:
        yield {"split": name, **({} if number is None else {LINE_NUMBER: number}), **record}


_KINDS: tuple[Callable[[str], bool], ...] = (LINE_NUMBER.__eq__, names_epoch, partial(names_step, fields=UNMAPPED))
"""Kinds of counters that tell the place of a record, the coarser first: batches may begin anew in each epoch."""


def _count(record: Mapping[str, Any], names: Callable[[str], bool]) -> int | float | None:
    """What a record counts under the first name of a kind."""
    return next((as_number(record[name]) for name in record if names(name)), None)
