"""What a console log counts by ``3/100`` alone: batches, epochs, or the steps of the reports between a bar's states."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from rmetric.importers.columns import epoch_of
from rmetric.importers.steps import TOTAL

BATCH, EPOCH, STEP = "batch", "epoch", "step"
LEAST_EPOCHS, LEAST_REPORTS = 2, 3
"""Lines from which on a counter is told to count epochs, and reports from which on a bar tells their steps."""
FRESH = 0.9
"""Share of the reports before each of which a counter must have risen."""


class _Counter:
    """How a counter goes on from line to line."""

    def __init__(self) -> None:
        self._last: Any = None
        self.lines, self.rises, self.others = 0, 0, 0
        """All, those with more than the one before, and those with another number than one more."""
        self.begins = 0
        """How often it begins anew."""

    def add(self, count: Any) -> None:
        """Take in the next count."""
        if self._last is not None:
            self.begins += count < self._last
            self.rises += count > self._last
            self.others += count != self._last + 1
        self.lines, self._last = self.lines + 1, count


class UnnamedCounters:
    """The counters of a log's first lines, by the number up to which they count."""

    def __init__(self) -> None:
        self._in_reports: defaultdict[Any, _Counter] = defaultdict(_Counter)
        self._before_reports: defaultdict[Any, _Counter] = defaultdict(_Counter)
        self._shown: dict[Any, Any] = {}
        self._reports = 0

    def add(self, found: Mapping[str, Any], *, measures: bool, lacks_step: bool) -> None:
        """Take in a line: whether it holds measurements, and the training loss without a step."""
        total = found.get(BATCH + TOTAL)
        if total is not None and not measures:
            self._shown[total] = found[BATCH]
        elif total is not None and epoch_of(found) is None:
            self._in_reports[total].add(found[BATCH])
        if lacks_step:
            self._reports += 1
            for bar, count in self._shown.items() if total is None else ():
                self._before_reports[bar].add(count)

    @property
    def epochs(self) -> frozenset[Any]:
        """Those that count epochs: one by one, while others begin anew again and again.

        A line such as ``[3/100] loss: 0.1`` does not say which of them it counts.
        """
        counters = self._in_reports
        if not any(counter.begins for counter in counters.values()):
            return frozenset()
        return frozenset(
            total for total, counter in counters.items() if counter.lines >= LEAST_EPOCHS and not counter.others
        )

    @property
    def bar(self) -> Any:
        """That of a bar that has risen before each report, which is then at its step; ``None``: there is none."""
        needed = FRESH * self._reports
        rising = [
            total
            for total, counter in self._before_reports.items()
            if counter.lines >= needed and counter.rises >= needed - 1
        ]
        return max(rising, default=None) if self._reports >= LEAST_REPORTS else None
