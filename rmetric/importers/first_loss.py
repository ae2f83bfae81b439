"""First losses that are of fewer steps than the others.

``if i % 100 == 0: print(running_loss / 100)`` prints a hundredth of a loss after a run's first step, and a sum over a
hundred steps begins with a single one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rmetric.batches import NumberedEvent
from rmetric.importers.run_marks import RUN, note
from rmetric.records import Event

LEAST_STEPS = 10
"""Steps between two losses, from which on a first one of one step alone is low enough to mislead."""
OF_ALL = 0.15, 1.5
"""Times that the second loss may be as high, as a share of these steps: it falls in the meantime."""
MOST_HELD = 64
"""Other events between the first two losses."""


def without_first_part(events: Iterable[NumberedEvent]) -> Iterator[NumberedEvent]:
    """The events; a run's first loss is left out, with a note, if it is that of one step where the next is of many.

    >>> printed = [(1, {"step": 1, "training_loss": 0.023}), (2, {"step": 101, "training_loss": 2.236})]
    >>> [event["step"] for _, event in without_first_part(printed) if "step" in event]
    [101]
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
        is_second = len(held) > 1 and "training_loss" in event
        if is_second or len(held) > MOST_HELD:
            yield from _told(held) if is_second and _is_of_one(held[0][1], event) else held
            held, awaited = [], False
    yield from held


def _is_of_one(first: Event, second: Event) -> bool:
    """Whether a first loss is of one step, and the second of all since then."""
    loss, later, step, steps = first["training_loss"], second["training_loss"], first["step"], second["step"]
    if not all(isinstance(value, int | float) for value in (loss, later, step, steps)):
        return False
    between = steps - step
    least, most = (share * between * loss for share in OF_ALL)
    return step <= 1 and between >= LEAST_STEPS and bool(0.0 < least <= later <= most)


def _told(held: list[NumberedEvent]) -> Iterator[NumberedEvent]:
    (line, first), *others = held
    text = f"the first loss, {first['training_loss']:.4g}, is of one step and those behind it of more; left out"
    yield line, note(text)
    rest = {name: value for name, value in first.items() if name != "training_loss"}
    if rest.keys() != {"step"}:
        yield line, rest
    yield from others
