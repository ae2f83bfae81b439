"""Columns of somebody's log that are ours, and what a row says under our names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmetric.importers.base import CACHED, FieldMap
from rmetric.importers.names import COMPONENT, meanings
from rmetric.importers.rows import Row, as_measured, as_number, is_finite
from rmetric.importers.step_times import is_step_rate, seconds_in


@dataclass
class Columns:
    """Those of their columns that are ours; :func:`~rmetric.importers.column_choice.chosen` makes it."""

    fields: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Our name → their name; of several the sum is taken."""
    notes: list[str] = field(default_factory=list)
    counters: tuple[str, ...] = ()
    """Names that count steps, the best first."""
    are_batches: bool = False
    """True if the counters count the batches of an epoch."""
    epochs_count: bool = False
    """True if, without counters, the epoch is the step."""
    known: set[str] = field(default_factory=set)
    """Names that the log has had so far."""
    fills_gaps: bool = False
    """True if the validation loss is NaN where there was no evaluation."""
    start_late: set[str] = field(default_factory=set)
    """Our names that are not measured before their first number: a loss that is NaN there, and not after, as there was
    nothing to take a mean of; a gradient norm while the scale of the loss is searched."""
    logarithms: set[str] = field(default_factory=set)
    """Our names whose values are logarithms of theirs."""
    negatives: set[str] = field(default_factory=set)
    """Our names whose values are theirs with the other sign."""
    are_plain: bool = False
    """True if there is a step, and for each of our names one column that may be meant."""

    def admit(self, name: str, fields: FieldMap) -> None:
        """Take up a name that comes late, if it stands for something that the log has not had so far."""
        for ours, rank in meanings(name, fields):
            if ours != "step" and ours not in self.fields and rank < COMPONENT:
                self.fields[ours] = (name,)

    def counter_of(self, row: Mapping[str, Any]) -> str | None:
        """Name of the counter that a row states, ``None`` without one: a loss is then a mean over reported steps."""
        for name in self.counters:
            if row.get(name) is not None:
                return name
        return None

    def count_of(self, row: Mapping[str, Any]) -> int | float | None:
        """What that counter says; ``None`` without one, or if it says no number."""
        name = self.counter_of(row)
        return None if name is None else as_number(row[name])

    def values(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Values of a row under our names; what it has not is left out."""
        found: dict[str, Any] = {}
        for ours, theirs in self.fields.items():
            value = row.get(theirs[0]) if len(theirs) == 1 else _sum([row.get(name) for name in theirs])
            if value is not None:
                found[ours] = value
        for ours in found.keys() & self.logarithms:
            found[ours] = _logarithm(found[ours])
        for ours in found.keys() & self.negatives:
            number = as_measured(found[ours])
            found[ours] = found[ours] if number is None else -number
        if "step_time_s" in found:
            seconds = _seconds(found.pop("step_time_s"), self.fields["step_time_s"][0])
            found |= {} if seconds is None else {"step_time_s": seconds}
        if self.fills_gaps and not is_finite(found.get("validation_loss", 0.0)):
            del found["validation_loss"]
        return found


def _logarithm(value: Any) -> Any:
    number = as_measured(value)
    return value if number is None else math.log(number) if number > 0.0 else math.nan


def _seconds(value: Any, name: str) -> Any:
    """A step time in seconds; one that is mapped without a unit is taken for that."""
    number, unit = as_number(value), seconds_in(name)
    if number is not None and is_step_rate(name):
        return 1.0 / number if number > 0.0 else None
    return value if number is None or unit is None else number * unit


def _sum(values: list[Any]) -> float | None:
    numbers = [*map(as_measured, values)]
    return None if any(number is None for number in numbers) else float(sum(numbers))  # type: ignore[arg-type]


def late_names(rows: Iterable[Row], columns: Columns, fields: FieldMap) -> Iterator[Row]:
    """The rows, unchanged; names that the survey has not seen are taken up on their way."""
    for row in rows:
        for name in row.values.keys() - columns.known:
            if len(columns.known) < CACHED:
                columns.known.add(name)
                columns.admit(name, fields)
        yield row
