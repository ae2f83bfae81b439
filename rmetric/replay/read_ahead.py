"""Read a log a little ahead of its replay, in a thread: both are compiled code for the most part."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from rmetric.batches import Batch, NumberedEvent
from rmetric.log_reader import OnDamage

PORTIONS, RECORDS = 4, 4096
"""Portions that are read ahead, and records of each: bounded memory, and so many that threads cost nothing beside."""
Item = NumberedEvent | tuple[int, str]
"""An event, or what is wrong with a line."""


def read_ahead(read: Callable[[OnDamage], Iterator[NumberedEvent]], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """The events that ``read`` reads; damage is told where it stands between them, by the thread that takes them."""
    taken: list[Item] = []
    events = read(lambda line, message: taken.append((line, message)))

    def portion() -> list[Item]:
        records = 0
        for numbered in events:
            taken.append(numbered)
            event = numbered[1]
            records += len(event.step) if isinstance(event, Batch) else 1
            if records >= RECORDS:
                break
        found = taken[:]
        taken.clear()
        return found

    with ThreadPoolExecutor(1, "read ahead") as thread:
        ahead = deque(thread.submit(portion) for _ in range(PORTIONS))
        while found := ahead.popleft().result():
            ahead.append(thread.submit(portion))
            for line, item in found:
                if isinstance(item, str):
                    on_damage(line, item)
                else:
                    yield line, item
