"""JSON Lines: the project's and the authors' event logs, and any other file of one JSON object a line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rmetric.importers.base import flattened, register_importer
from rmetric.importers.columns import Row, in_words
from rmetric.importers.names import measures_loss
from rmetric.importers.steps import TOTAL
from rmetric.importers.tables import imported
from rmetric.log_reader import NumberedEvent, OnDamage, read_batches, read_events

_OF_TOTAL = re.compile(r"\s*(\d{1,18})\s*/\s*(\d{1,18})\s*")
"""``"5/200"``: a counter and the number up to which it counts."""


@register_importer("rmetric")
def read_event_log(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """A log of this project, simulated or real, or of the authors: its events as they are.

    Only an explicit ``mapping`` renames a field, and only in METRICS records; there are no aliases.
    """
    return _renamed(read_events(path, on_damage), mapping) if mapping else read_batches(path, on_damage)


def _renamed(events: Iterator[NumberedEvent], mapping: Mapping[str, str]) -> Iterator[NumberedEvent]:
    for line, event in events:
        if event.get("event", "METRICS") == "METRICS":
            theirs = {our_name: event[their_name] for our_name, their_name in mapping.items() if their_name in event}
            named = event.get("non_finite")
            if isinstance(named, list):
                theirs |= {our_name: math.inf for our_name, their_name in mapping.items() if their_name in named}
                event["non_finite"] = [name for name in named if name not in mapping]
            kept = {key: value for key, value in event.items() if key not in mapping}
            yield line, {**kept, **theirs}
        else:
            yield line, event


@register_importer("jsonl")
def read_jsonl(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """One JSON object a line, of any logger. Nested objects are reached by dotted names (``train.loss``).

    An object without a usable field of ours, such as a first line with settings, is passed over in silence.
    """
    return imported(path, lambda report: jsonl_rows(path, report), mapping, on_damage)


def jsonl_rows(path: Path, on_damage: OnDamage) -> Iterator[Row]:
    """The rows as they stand there."""
    for line, record in read_events(path, on_damage):
        named = record.pop("non_finite", None)
        flat = flattened(record)
        if columns := _columns(flat):
            yield from (
                Row(line, dict(zip(columns, values, strict=True))) for values in zip(*columns.values(), strict=True)
            )
            if others := [name for name in flat if isinstance(flat[name], list) and name not in columns]:
                on_damage(line, f"lists of another length are left out ({in_words(others)})")
            continue
        if isinstance(named, list):
            flat |= {name: math.inf for name in named if isinstance(name, str)}
        for name, counted in [(name, value) for name, value in flat.items() if type(value) is str and "/" in value]:
            if found := _OF_TOTAL.fullmatch(counted):
                flat[name], flat[name + TOTAL] = int(found[1]), int(found[2])
        if any(type(value) is float for value in flat.values()):
            flat = {name: value for name, value in flat.items() if not _says_nan(value)}
        yield Row(line, flat)


def _columns(flat: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The columns of a table, if a record holds whole ones: lists of numbers, as long as the longest of the losses."""
    lists = {name: value for name, value in flat.items() if type(value) is list and len(value) > 1}
    if not lists or any(measures_loss(name) and isinstance(flat[name], int | float) for name in flat):
        return {}
    tables = {
        name: value for name, value in lists.items() if all(isinstance(item, int | float | None) for item in value)
    }
    length = max((len(value) for name, value in tables.items() if measures_loss(name)), default=0)
    return {name: value for name, value in tables.items() if len(value) == length}


def _says_nan(value: Any) -> bool:
    """Whether a value is the text ``nan``; beside numbers it means that there was nothing to record."""
    return type(value) is str and value.strip().casefold() == "nan"
