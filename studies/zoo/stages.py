"""Trainings in stages: what holds at a step, and where another stage begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def holding(since: Mapping[int, T], step: int) -> T:
    """What holds at a step, of what begins at some steps, the earliest first; none of them may lie after it.

    >>> [holding({0: "few", 350: "many"}, step) for step in (1, 349, 350)]
    ['few', 'few', 'many']
    """
    return [each for first, each in since.items() if first <= step][-1]


def begins_anew(step: int, length: int) -> bool:
    """Whether a stage of so many steps begins with a step, after one that was complete; the first begins with step 1.

    >>> [step for step in range(1, 800) if begins_anew(step, 350)]
    [351, 701]
    """
    return step > 1 and (step - 1) % length == 0
