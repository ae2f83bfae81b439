"""First losses that are of fewer steps than the others.

``if i % 100 == 0: print(running_loss / 100)`` prints a hundredth of a loss after a run's first step, and a sum over a
hundred steps begins with a single one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from rmetric.batches import NumberedEvent
from rmetric.importers.run_marks import RUN, note
from rmetric.records import Event

LEAST_STEPS = 10
"""Steps between two losses, from which on a first one of one step alone is low enough to mislead."""
LOWER, OF_ALL = 10.0, (0.15, 1.5)
"""Times that the first loss is lower, at least; and as a share of the steps between: a loss falls in the meantime."""
FOLLOWING = 2
"""Losses behind the second one that are lower: a run that breaks between the first two goes on as high."""
MOST_HELD = 64
"""Other events between these losses."""


def without_first_part(events: Iterable[NumberedEvent]) -> Iterator[NumberedEvent]:
    """The events; a run's first loss is left out, with a note, if it is that of one step where the next are of many.

    >>> losses = {1: 0.023, 101: 2.236, 201: 2.166, 301: 2.114}
    >>> printed = [(1, {"step": step, "training_loss": loss}) for step, loss in losses.items()]
    >>> [event["step"] for _, event in without_first_part(printed) if "step" in event]
    [101, 201, 301]
    """
    held: list[NumberedEvent] = []
    awaited = True
    for line, event in events:
        if event.get("event") == RUN:
            yield from held
            held, awaited = [], True
        if not awaited or (not held and "training_loss" not in event):
            yield line, event
            continue
        held.append((line, event))
        losses = [one for _, one in held if "training_loss" in one]
        if len(losses) == 2 + FOLLOWING or len(held) > MOST_HELD:
            yield from _told(held) if _is_of_one(losses) else held
            held, awaited = [], False
    yield from held


def _is_of_one(losses: Sequence[Event]) -> bool:
    """Whether a first loss is of one step, and the second of all since then."""
    values = [event["training_loss"] for event in losses]
    steps = [event["step"] for event in losses]
    if len(losses) < 2 + FOLLOWING or not all(isinstance(value, int | float) for value in (*values, *steps)):
        return False
    first, second, *following = values
    between = steps[1] - steps[0]
    least, most = (share * between * first for share in OF_ALL)
    is_part = 0.0 < LOWER * first <= second < math.inf and least <= second <= most and max(following) < second
    return steps[0] <= 1 and between >= LEAST_STEPS and is_part


def _told(held: list[NumberedEvent]) -> Iterator[NumberedEvent]:
    (line, first), *others = held
    text = f"the first loss, {first['training_loss']:.4g}, is of one step and those behind it of more; left out"
    yield line, note(text)
    rest = {name: value for name, value in first.items() if name != "training_loss"}
    if rest.keys() != {"step"}:
        yield line, rest
    yield from others
