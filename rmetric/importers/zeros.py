"""Losses of exactly 0 that may stand for NaN."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rmetric.importers.streams import note
from rmetric.log_reader import NumberedEvent

FROM = 1e-2
"""Smallest loss before the first 0: one that falls to 0 by itself gets smaller first."""
IN_A_ROW = 2


class ZeroLosses:
    """Looks for a training loss that drops to exactly 0 and stays there.

    Older versions of Hugging Face's Trainer logged 0 for NaN; a loss of 0 is right for some objectives. The values are
    left as they are.
    """

    def __init__(self) -> None:
        self._before = math.nan
        self._first: Any = None
        self._length = 0
        self._told: tuple[Any, float] | None = None
        self._count = 0

    def add(self, step: Any, loss: Any) -> None:
        """The next record."""
        if not isinstance(loss, int | float):
            return
        if loss != 0:
            self._before, self._length = loss, 0
            return
        self._length += 1
        self._first = step if self._length == 1 else self._first
        if self._length >= IN_A_ROW and not abs(self._before) < FROM:
            self._told = self._told or (self._first, self._before)
        self._count += 1

    def notes(self, line: int) -> Iterator[NumberedEvent]:
        """The suspicion, if there is one."""
        if self._told is not None:
            step, before = self._told
            after = "" if math.isnan(before) else f" (the loss before was {before:.4g})"
            yield (
                line,
                note(
                    f"the training loss is exactly 0 from step {step} on, in {self._count} records{after}: "
                    "older versions of the Hugging Face Trainer wrote 0 for NaN"
                ),
            )
