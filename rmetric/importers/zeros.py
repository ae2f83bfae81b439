"""Losses of exactly 0 that may stand for NaN."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rmetric.importers.streams import note
from rmetric.log_reader import NumberedEvent

FROM = 1e-2
"""Smallest loss before the first 0: one that falls to 0 by itself gets smaller first."""
IN_A_ROW = 3


class ZeroLosses:
    """Looks for a training loss that drops to exactly 0 and stays there to the end.

    Older versions of Hugging Face's Trainer logged 0 for NaN; a loss of 0 is right for some objectives. The values are
    left as they are.
    """

    def __init__(self) -> None:
        self._before = math.nan
        self._first: Any = None
        self._count = 0

    def add(self, step: Any, loss: Any) -> None:
        """The next record."""
        if not isinstance(loss, int | float):
            return
        if loss != 0:
            self._before, self._count = loss, 0
            return
        self._count += 1
        self._first = step if self._count == 1 else self._first

    def notes(self, line: int) -> Iterator[NumberedEvent]:
        """The suspicion, if there is one; for a log of nothing but zeros as well."""
        if self._count >= IN_A_ROW and not self._before < FROM:
            after = "" if math.isnan(self._before) else f" (the loss before was {self._before:.4g})"
            yield (
                line,
                note(
                    f"the training loss is exactly 0 from step {self._first} on, in {self._count} records{after}: "
                    "older versions of the Hugging Face Trainer wrote 0 for NaN"
                ),
            )
