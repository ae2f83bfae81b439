"""What the first rows of a log hold: under each name its values in short, and which names stand together."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from rmetric.importers.base import CACHED
from rmetric.importers.names import TOTAL
from rmetric.importers.rows import Row, epoch_of, is_finite

SURVEYED_ROWS = 20_000
FIRST_ROWS = 32
"""Rows that state the same names, of which the values are remembered."""
LEAST_COPIED = 8
"""Rows that have come several times, from which on all do."""
LEARNED = 0.9
"""Share of its first value below which a loss has fallen."""
ROUNDED = 1000
"""A counter that stands still at multiples of it in most rows is rounded."""


@dataclass(slots=True)
class Seen:
    """What the rows say under one name, in their order."""

    count: int = 0
    epoch: Any = None
    repeats_epoch: int = 0
    """Rows in which the epoch is that of the name's row before."""
    value: Any = None
    first: Any = None
    not_after: int = 0
    """Rows in which the value is not greater than in the name's row before."""
    stands: int = 0
    """Rows in which it is the same thousands as in the row before, which states the same names and is another one."""
    set_back_to: float | None = None
    """The latest value that is smaller than the one before it."""
    strays: int = 0
    """Rows in which it is set back, and not to the value to which it was before."""
    lowest: float = math.inf
    highest: float = -math.inf
    not_finite: int = 0
    not_finite_at_first: int = 0
    """Rows before the first in which the value is finite."""
    stays_finite: int = 0
    """Rows in which the value is finite, as that of the name's row before."""
    gap: int = 0
    """Rows by now since the last one in which the value is finite."""
    longest_gap: int = 0
    """Most rows in a row without a finite value that one follows."""
    one_more: int = 0
    """Rows in which the value is one more than in the name's row before."""

    def add(self, value: Any, epoch: Any, stands: bool) -> None:
        """Take in the next row's value; ``stands``: it is that of the row before, though that is another one."""
        self.count += 1
        self.repeats_epoch += epoch is not None and epoch == self.epoch
        self.epoch = epoch
        if not isinstance(value, int | float):
            return
        self.stands += stands and value >= ROUNDED and value % ROUNDED == 0
        finite, before = is_finite(value), self.value
        self.not_finite += not finite
        self.not_finite_at_first += not finite and not math.isfinite(self.lowest)
        self.longest_gap = max(self.longest_gap, self.gap) if finite else self.longest_gap
        self.gap = 0 if finite else self.gap + 1
        self.lowest, self.highest = min(self.lowest, value), max(self.highest, value)
        self.value, self.first = value, value if before is None else self.first
        if before is None:
            return
        self.not_after += value <= before
        self.one_more += value - before == 1
        self.stays_finite += finite and is_finite(before)
        if value < before:
            self.strays += self.set_back_to not in (None, value)
            self.set_back_to = value

    @property
    def never_a_number(self) -> bool:
        """Whether no value is finite."""
        return self.not_finite == self.count

    @property
    def falls(self) -> bool:
        """Whether the values are no counts, and the last or the lowest ones are smaller than the first."""
        if self.count <= 2 or not isinstance(self.first, float):
            return False
        return self.value < self.first or self.lowest < min(LEARNED * self.first, self.first)

    @property
    def goes_back(self) -> bool:
        """Whether a value is ever smaller than the one before it."""
        return self.set_back_to is not None

    @property
    def is_clock(self) -> bool:
        """Whether values rise from row to row, as the time since the begin of a run does."""
        rises = self.count > 2 and not self.goes_back and 2 * self.not_after < self.count
        return rises and self.highest > 2 * self.lowest

    @property
    def jumps_back(self) -> bool:
        """Whether a counter stands still or goes back in a good part of its rows."""
        return 3 * self.not_after > self.count

    @property
    def counts(self) -> bool:
        """Whether the values behave like those of a counter: they rise, and seldom go back."""
        is_rounded = 3 * self.stands > 2 * self.count and not self.goes_back
        strays = 10 * self.strays > self.count and self.jumps_back
        goes_to_and_fro = strays and self.count > 2 * (self.highest - self.lowest)
        return not (self.never_rises or goes_to_and_fro or is_rounded)

    @property
    def never_rises(self) -> bool:
        """Whether a counter has one value in all of its rows: ``Step [100/100]`` at the end of each epoch."""
        return self.count > 2 and self.not_after == self.count - 1 and self.value == self.first

    def lies_within(self, counter: Seen) -> bool:
        """Whether a counter that few rows state, such as those of evaluations, may be another name of one."""
        return not self.goes_back and counter.lowest <= self.highest <= counter.highest

    @property
    def stands_still(self) -> bool:
        """Whether a counter hardly ever rises, such as one that is the number of all steps."""
        return 10 * self.not_after > 9 * self.count - 10


@dataclass
class Survey:
    """What the first rows hold."""

    seen: dict[str, Seen] = field(default_factory=dict)
    patterns: Counter[frozenset[str]] = field(default_factory=Counter)
    """Names that rows state together."""
    rows: int = 0
    first: list[dict[str, Any]] = field(default_factory=list)
    """What the first rows of each pattern say."""
    has_fractional_epochs: bool = False
    _before: dict[str, Any] = field(default_factory=dict)
    _alike: int = 1
    """Rows by now that say the very same."""
    _copies: Counter[int] = field(default_factory=Counter)
    """How many rows in a row have said the very same, and how often; the next one differs by more than a count."""
    _told_anew: Counter[str] = field(default_factory=Counter)
    """How often that next one, behind several, says another value, for each name."""

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Survey:
        """The survey of the first :data:`SURVEYED_ROWS` rows."""
        survey = cls()
        for row in itertools.islice(rows, SURVEYED_ROWS):
            survey._add(row)
        return survey

    def _add(self, row: Row) -> None:
        self.rows += 1
        epoch = epoch_of(row.values)
        self.has_fractional_epochs |= isinstance(epoch, float) and not epoch.is_integer()
        names = frozenset(row.values)
        if names in self.patterns or len(self.patterns) < CACHED:
            self.patterns[names] += 1
            if self.patterns[names] <= FIRST_ROWS:
                self.first.append(row.values)
        before, self._before = self._before, row.values
        is_same = before == row.values
        is_another = not is_same and before.keys() == row.values.keys()
        differ = {name for name, value in row.values.items() if before[name] != value} if is_another else set[str]()
        if len(differ) > 1:
            self._copies[self._alike] += 1
            if self._alike > 1:
                self._told_anew.update(differ)
        self._alike = self._alike + 1 if is_same else 1
        for name, value in row.values.items():
            if value is None:
                continue
            seen = self.seen.get(name)
            if seen is None:
                if len(self.seen) >= CACHED:
                    continue
                seen = self.seen[name] = Seen()
            stands = is_another and name not in differ
            seen.add(value, epoch, stands)

    def copies(self, losses: Iterable[str]) -> int:
        """How many times nearly every row comes, as several processes print it; 1 if hardly any changes the losses."""
        copies, most = max(self._copies.items(), key=lambda known: known[1], default=(1, 0))
        changes = self._copies.total()
        is_told = any(2 * self._told_anew[name] > changes for name in losses)
        return copies if is_told and most >= LEAST_COPIED and 10 * most >= 9 * changes else 1

    @property
    def empty(self) -> list[str]:
        """Names under which no row has a value."""
        return [name for name in dict.fromkeys(name for row in self.first for name in row) if name not in self.seen]

    def beside(self, name: str, others: Collection[str]) -> int:
        """Rows that name both a column and one of the others."""
        return sum(rows for names, rows in self.patterns.items() if name in names and not names.isdisjoint(others))

    def most_state(self, name: str, others: Collection[str]) -> bool:
        """Whether at least half of the rows that state a name state one of the others."""
        count = self.seen[name].count if name in self.seen else 0
        beside = self.beside(name, others)
        # A table has all of its names in every row, those that are empty there too.
        return 2 * min(beside, sum(self.seen[other].count for other in others)) >= count

    def is_full(self, name: str) -> bool:
        """Whether a counter is always the number up to which it counts, as far as the first rows say."""
        counted = [(row[name], row[name + TOTAL]) for row in self.first if name in row and name + TOTAL in row]
        return bool(counted) and all(count == total for count, total in counted)

    def are_together(self, names: Collection[str]) -> bool:
        """Whether hardly any row states some of these names without the others."""
        shared = [(count, len(row.intersection(names))) for row, count in self.patterns.items()]
        some = sum(count for count, known in shared if known)
        return 10 * sum(count for count, known in shared if known == len(names)) >= 9 * some
