"""Work handed out ahead of its results, in order and in bounded number."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
Ticket = TypeVar("Ticket")

AHEAD = 4
"""Units a process that are handed out and not yet asked for: none of them waits for work, few results wait for us."""


def in_order(
    submit: Callable[[T], Ticket], result: Callable[[Ticket], R], items: Iterable[T], processes: Callable[[], int]
) -> Iterator[R]:
    """Results of the items in their order; ``submit`` hands one out, ``result`` waits for it.

    ``processes`` is asked at each item how many there are: those of a cluster come and go.
    """
    waiting: deque[Ticket] = deque()
    for item in items:
        waiting.append(submit(item))
        if len(waiting) > AHEAD * max(1, processes()):
            yield result(waiting.popleft())
    while waiting:
        yield result(waiting.popleft())
