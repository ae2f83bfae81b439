"""Counters of a console log apart from what they count: before the reports, or as ``3/100`` without a name."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rmetric.importers.base import FieldMap
from rmetric.importers.names import TOTAL, names_counter, names_epoch
from rmetric.importers.rows import epoch_of

BATCH, EPOCH, STEP = "batch", "epoch", "step"
LEAST_EPOCHS, LEAST_REPORTS = 2, 3
"""Lines from which on a counter is told to count epochs, and reports from which on one tells their steps."""
MOST_TOTALS, LEAST_CHANGING = 2, 4
"""Changes of the number behind a slash for each of the one before it, from which on that is an epoch; and lines for
each of these changes, up to so many."""
FRESH = 0.9
"""Share of the reports before each of which a counter must have gone on."""

Key = tuple[str, Any]
"""Name of a counter, and up to what it counts if it has no name of its own: several bars may count side by side."""


@dataclass(frozen=True)
class Announcement:
    """The counter that lines before the reports state; a report is at its latest count."""

    key: Key
    are_steps: bool
    """Whether it has no name and never begins anew, as the bar of a Trainer."""
    closes: bool
    """Whether it stands behind its report, and not before."""

    def stated(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """What a line says of it, as a part of the next report; empty if nothing."""
        name, total = self.key
        if name not in found or (total is not None and found.get(name + TOTAL) != total):
            return {}
        if self.are_steps:
            return {STEP: found[name]}
        return {part: found[part] for part in (name, name + TOTAL) if part in found}


class _Course:
    """How a counter goes on from line to line."""

    def __init__(self) -> None:
        self._last: Any = None
        self.lines, self.changes, self.others = 0, 0, 0
        """All, those with another count than the one before, and those with another than one more."""
        self.begins = 0
        """How often it begins anew."""

    def add(self, count: Any) -> None:
        """Take in the next count."""
        if self._last is not None:
            self.begins += count < self._last
            self.changes += count != self._last
            self.others += count != self._last + 1
        self.lines, self._last = self.lines + 1, count


def counters_among(fields: FieldMap, names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of a line that count steps or batches."""
    return tuple(name for name in names if names_counter(name, fields) and not names_epoch(name))


class ConsoleCounters:
    """The counters of a log's first lines.

    Parameters
    ----------
    among
        :func:`counters_among` the names of a line.
    """

    def __init__(self, among: Callable[[tuple[str, ...]], tuple[str, ...]]) -> None:
        self._among = among
        self._in_reports: defaultdict[Any, _Course] = defaultdict(_Course)
        self._before_reports: defaultdict[Key, _Course] = defaultdict(_Course)
        self._to_totals: defaultdict[str, tuple[_Course, _Course]] = defaultdict(lambda: (_Course(), _Course()))
        """Of each counter with a number behind a slash, how both go on."""
        self._stated: dict[Key, Any] = {}
        self._reports = 0
        self._stated_by_reports: Counter[Key] = Counter()
        """How many reports of the training state a counter themselves."""
        self._reported: set[tuple[str, ...]] = set()
        """The names of the reports since a counter was stated."""
        self._names: Counter[tuple[str, ...]] = Counter()
        self._before_first: frozenset[Key] = frozenset()
        """Counters that were stated before the first report."""

    def add(self, found: Mapping[str, Any], *, measures: bool, trains: bool) -> None:
        """Take in a line: whether it holds measurements, and whether the training loss."""
        counters = dict(self._counters(found))
        for name in self._among(tuple(found)) if measures else ():
            if name + TOTAL in found:
                for course, count in zip(self._to_totals[name], (found[name], found[name + TOTAL]), strict=True):
                    course.add(count)
        total = found.get(BATCH + TOTAL)
        if measures and total is not None and epoch_of(found) is None:
            self._in_reports[total].add(found[BATCH])
        if counters and not trains:
            self._stated |= counters
            self._reported.clear()
        elif trains and not counters:
            self._add_report(tuple(found))
        elif trains:
            self._stated_by_reports.update(counters)

    def _counters(self, found: Mapping[str, Any]) -> Iterator[tuple[Key, Any]]:
        for name in self._among(tuple(found)):
            if isinstance(found[name], int | float):
                yield (name, found.get(name + TOTAL) if name == BATCH else None), found[name]

    def _add_report(self, names: tuple[str, ...]) -> None:
        """Take in a report without a counter; several of other names, one after the other, are one."""
        if self._reported and names not in self._reported:
            self._reported.add(names)
            return
        self._reported = {names}
        self._before_first = self._before_first if self._reports else frozenset(self._stated)
        self._names[names] += 1
        self._reports += 1
        for key, count in self._stated.items():
            self._before_reports[key].add(count)

    @property
    def places(self) -> frozenset[str]:
        """Names under which ``3/100`` is the hundredth batch of epoch 3: that stands, while the batch goes on."""
        return frozenset(
            name
            for name, (first, second) in self._to_totals.items()
            if second.changes > MOST_TOTALS * first.changes and LEAST_CHANGING * second.changes > second.lines
        )

    @property
    def epochs(self) -> frozenset[Any]:
        """Numbers up to which epochs are counted: one by one, while others begin anew again and again.

        A line such as ``[3/100] loss: 0.1`` does not say which of them it counts.
        """
        courses = self._in_reports
        if not any(course.begins for course in courses.values()):
            return frozenset()
        return frozenset(
            total for total, course in courses.items() if course.lines >= LEAST_EPOCHS and not course.others
        )

    @property
    def announcement(self) -> Announcement | None:
        """The counter that has gone on before each report and does not stand in others; ``None``: there is none."""
        needed = FRESH * self._reports
        fresh = {
            key: course
            for key, course in self._before_reports.items()
            if course.lines >= needed and course.changes >= needed - 1 and self._stated_by_reports[key] < needed
        }
        if self._reports < LEAST_REPORTS or not fresh:
            return None
        key = max(fresh, key=lambda key: math.inf if key[1] is None else key[1])
        # The first report is like the others, none lacks a counter at the end.
        is_last = not self._reported and next(iter(self._names.values())) >= needed
        are_steps = key[1] is not None and not fresh[key].begins
        return Announcement(key, are_steps, closes=key not in self._before_first and is_last)
