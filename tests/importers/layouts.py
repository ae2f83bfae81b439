"""Layouts of logs, each a function that yields the lines, with what a person sees in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

POINTS = 30
Lines = Callable[[], Iterator[str]]
S = TypeVar("S")


class Layouts(dict[str, tuple[Lines, S]]):
    """Layouts by the names of their functions."""

    def add(self, seen: S) -> Callable[[Lines], Lines]:
        def added(lines: Lines) -> Lines:
            self[lines.__name__] = lines, seen
            return lines

        return added


def loss(step: int) -> float:
    return 4.0 - step / 10
