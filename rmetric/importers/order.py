"""Records in the order of their steps, where a log states evaluations apart from the training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from rmetric.batches import NumberedEvent
from rmetric.records import Event

MOST_WAITING = 64
"""Evaluations that wait for the training to reach their step."""
_EVALUATION = frozenset({"step", "validation_loss"})
ALIKE = 1e-3
"""Relative difference of two values that are the same but for the digits that are printed."""


def in_order(events: Iterable[NumberedEvent]) -> Iterator[NumberedEvent]:
    """Records with what was stated apart at the same step, and evaluations at their place.

    An evaluation may be logged before training records of earlier steps, or again; the first one counts.

    >>> list(in_order([(1, {"step": 9, "validation_loss": 2.0}), (2, {"step": 8, "training_loss": 2.1})]))
    [(2, {'step': 8, 'training_loss': 2.1}), (1, {'step': 9, 'validation_loss': 2.0})]
    """
    order = _Order()
    for numbered in events:
        yield from order.add(numbered)
    yield from order.flush()


class _Order:
    def __init__(self) -> None:
        self._held: NumberedEvent | None = None
        self._again: list[NumberedEvent] = []
        """Other records of its step, as a second worker writes them: an evaluation belongs to the first."""
        self._evaluations: list[NumberedEvent] = []

    def add(self, numbered: NumberedEvent) -> Iterator[NumberedEvent]:
        """What can be passed on now that an event has come."""
        event = numbered[1]
        if type(event.get("step")) not in (int, float):
            yield from self.flush()
            yield numbered
        elif self._held is not None and _joined(self._held[1], event):
            return
        elif event.keys() == _EVALUATION:
            if not any(event["step"] == other["step"] for _, other in self._evaluations):
                self._evaluations.append(numbered)
            if len(self._evaluations) > MOST_WAITING:
                yield from self.flush()
        elif self._held is not None and event["step"] == self._held[1]["step"] and len(self._again) < MOST_WAITING:
            self._again.append(numbered)
        else:
            yield from self._released()
            yield from self._due(event)
            self._held = numbered

    def _released(self) -> Iterator[NumberedEvent]:
        if self._held is not None:
            yield self._held
        yield from self._again
        self._held, self._again = None, []

    def _due(self, event: Event) -> Iterator[NumberedEvent]:
        """Evaluations before the step of a record; one of that step joins it."""
        waiting, self._evaluations = self._evaluations, []
        for numbered in sorted(waiting, key=lambda waiting: waiting[1]["step"]):
            if numbered[1]["step"] < event["step"]:
                yield numbered
            elif not _joined(event, numbered[1]):
                self._evaluations.append(numbered)

    def flush(self) -> Iterator[NumberedEvent]:
        """All that waits."""
        yield from self._released()
        yield from sorted(self._evaluations, key=lambda waiting: waiting[1]["step"])
        self._evaluations = []


def _joined(record: Event, event: Event) -> bool:
    """Whether an event has become part of a record of its step, or says of it again what is known."""
    if event["step"] != record["step"]:
        return False
    if event.items() <= record.items():  # a line that two handlers have written
        return True
    if len(event.keys() & record.keys()) == 1:
        record.update(event)
        return True
    if "validation_loss" in event and "validation_loss" not in record:  # a progress bar at the end of its epoch
        record.update({ours: value for ours, value in event.items() if ours not in record})
        return True
    if event.keys() == _EVALUATION:
        return True
    stated = event.keys() & record.keys() - _EVALUATION
    if not stated or not all(_are_alike(event[ours], record[ours]) for ours in stated):
        return False
    evaluated = {ours: event[ours] for ours in event.keys() & {"validation_loss"}}  # a bar goes on showing the last one
    record.update(event | record | evaluated)
    return True


def _are_alike(one: Any, other: Any) -> bool:
    """Whether two values are the same but for their digits."""
    if not isinstance(one, int | float) or not isinstance(other, int | float):
        return bool(one == other)
    return math.isclose(one, other, rel_tol=ALIKE) or (math.isnan(one) and math.isnan(other))
