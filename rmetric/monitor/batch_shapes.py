"""Batches that are of another shape on purpose: longer sequences, larger images, more examples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Shape = tuple[tuple[int, ...], ...]
"""Of each tensor of a batch."""
STEADY, KNOWN = 32, 16
"""Records with batches of one shape after which another is a change, and shapes that are remembered."""
FEWER, MORE = 0.8, 1.1
"""Factors of the number of entries between which another shape explains no other loss: one token is cut off. Lessons
that grow by the same length each time grow by ever smaller factors."""


class BatchShapes:
    """Tells when batches have come to be of another shape, after they were of one for long.

    What a run has had for as long, or was told of before, is none of its news; and shapes that differ from batch to
    batch are never steady. A smaller shape must come twice in a row: the last batch of an epoch is smaller, once. So
    must a larger one where one that was told of has not lasted. A few tokens more or fewer change no loss, so that one
    which does change then is not explained.

    >>> shapes = BatchShapes()
    >>> told = [shapes.update(((8, length),)) for length in [16] * 40 + [12] + [16] * 40 + [32] * 40 + [30] * 40]
    >>> [(place, change) for place, change in enumerate(told) if change]
    [(81, 'batches of (8, 32), not of (8, 16)')]
    """

    def __init__(self) -> None:
        self._shape: Shape = ()
        self._records = 0
        self._latest: Shape = ()
        self._known: list[Shape] = []
        self._told = self._have_passed = False

    def update(self, shape: Shape) -> str:
        """What is changed with the batch of the next record, in words; empty: nothing."""
        twice, self._latest = shape == self._latest, shape
        if shape == self._shape:
            self._records += 1
            if self._records == STEADY:
                self._remember(shape)
            return ""
        if not twice and (self._have_passed or _entries(shape) <= _entries(self._shape)):
            return ""
        before, steady, is_known = self._shape, self._records >= STEADY, shape in self._known
        self._have_passed |= self._told and not steady and is_known
        self._shape, self._records = shape, 1
        self._told = steady and not is_known and not _are_near(before, shape)
        if not self._told:
            return ""
        self._remember(shape)
        return f"batches of {_text(shape)}, not of {_text(before)}"

    def _remember(self, shape: Shape) -> None:
        if shape not in self._known:
            self._known = [*self._known[1 - KNOWN :], shape]

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to tell of batches that it is started with otherwise."""
        passed = {"told": self._told, "have_passed": self._have_passed}
        return {"shape": self._shape, "records": self._records, "known": list(self._known), **passed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._shape, self._records, self._known = state["shape"], state["records"], list(state["known"])
        self._told, self._have_passed = state["told"], state["have_passed"]


def _are_near(before: Shape, now: Shape) -> bool:
    entries = _entries(before)
    return [*map(len, before)] == [*map(len, now)] and FEWER * entries < _entries(now) < MORE * entries


def _entries(shape: Shape) -> int:
    return sum(map(math.prod, shape))


def _text(shape: Shape) -> str:
    return ", ".join(map(str, shape))
