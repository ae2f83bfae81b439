"""JSON Lines: the project's and the authors' event logs, and any other file of one JSON object a line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rmetric.batches import NumberedEvent
from rmetric.importers.base import UNMAPPED, flattened, register_importer
from rmetric.importers.names import TOTAL, measures_loss, names_counter
from rmetric.importers.rows import Row, no_column
from rmetric.importers.steps import with_total
from rmetric.importers.tables import imported
from rmetric.log_lines import PLAIN_TEXT, WHOLE_LOG, OnDamage, read_batches, read_events


@register_importer("rmetric")
def read_event_log(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """A log of this project, simulated or real, or of the authors: its events as they are.

    Only an explicit ``mapping`` renames a field, and only in METRICS records; there are no aliases.
    """
    return _renamed(read_events(path, on_damage), mapping, on_damage) if mapping else read_batches(path, on_damage)


def _renamed(
    events: Iterator[NumberedEvent], mapping: Mapping[str, str], on_damage: OnDamage
) -> Iterator[NumberedEvent]:
    names: list[str] = []
    absent = set(mapping.values())
    for line, event in events:
        if event.get("event", "METRICS") == "METRICS":
            names = names or [name for name in event if name != "event"]
            absent -= event.keys()
            theirs = {our_name: event[their_name] for our_name, their_name in mapping.items() if their_name in event}
            named = event.get("non_finite")
            if isinstance(named, list):
                absent.difference_update(name for name in named if isinstance(name, str))
                theirs |= {our_name: math.inf for our_name, their_name in mapping.items() if their_name in named}
                event["non_finite"] = [name for name in named if name not in mapping]
            kept = {key: value for key, value in event.items() if key not in mapping}
            yield line, {**kept, **theirs}
        else:
            yield line, event
    if names:
        for name in sorted(absent):
            on_damage(WHOLE_LOG, no_column(name, names))


@register_importer("jsonl")
def read_jsonl(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """One JSON object a line, of any logger. Nested objects are reached by dotted names (``train.loss``).

    An object without a usable field of ours, such as a first line with settings, is passed over in silence, and so is
    what a program has written besides.
    """
    return imported(path, lambda report: jsonl_rows(path, mapping, report), mapping, on_damage)


def jsonl_rows(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[Row]:
    """The rows as they stand there."""

    def report(line: int, message: str) -> None:
        if message != PLAIN_TEXT:
            on_damage(line, message)

    wrapper = "" if mapping else None  # a mapping names what is within by a dotted name
    for line, record in read_events(path, report):
        named = record.pop("non_finite", None)
        if wrapper is None:
            wrapper = _wrapper(record)
        if wrapper and isinstance(record.get(wrapper), dict):
            record |= record.pop(wrapper)
        flat = flattened(record, lists=True)
        if isinstance(named, list):
            flat |= {name: math.inf for name in named if isinstance(name, str)}
        yield Row(line, _with_texts_read(flat) if str in map(type, flat.values()) else flat)


def _with_texts_read(values: dict[str, Any]) -> dict[str, Any]:
    """The values with ``5/200`` as two numbers; the text ``nan`` beside numbers says no more than null does."""
    for name, counted in [(name, value) for name, value in values.items() if type(value) is str and "/" in value]:
        if found := with_total(counted):
            values[name], values[name + TOTAL] = found
    if float in map(type, values.values()):
        return {name: None if _says_nan(value) else value for name, value in values.items()}
    return values


def _wrapper(record: Mapping[str, Any]) -> str | None:
    """The object in a record that has its loss and its counter, as structured loggers write it; empty if it has none.

    ``None`` for a record without a loss, which does not tell.
    """
    if any(map(measures_loss, record)):
        return ""
    inner = {
        name: value for name, value in record.items() if isinstance(value, dict) and any(map(measures_loss, value))
    }
    if not inner or any(names_counter(name, UNMAPPED) for name in record):
        return "" if inner else None
    return next((name for name, value in inner.items() if any(names_counter(key, UNMAPPED) for key in value)), "")


def _says_nan(value: Any) -> bool:
    """Whether a value is the text ``nan``."""
    return type(value) is str and value.strip().casefold() == "nan"
