"""Steps of rows: as counted, as batches or epochs, or by the row; and where another run begins."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmetric.errors import UserError
from rmetric.importers.columns import Columns
from rmetric.importers.names import TOTAL, names_epoch
from rmetric.importers.rows import as_number, epoch_of

LEAST_JUDGED, MOST_JUDGED = 6, 64
"""Records of training from which on, and up to which, the order of rows is judged."""
ROUNDED_EPOCHS = 0.05
"""Difference of epochs below which they may be the same but for the digits that a log prints (9.844, 10.84)."""
_OF_TOTAL = re.compile(r"\s*(\d{1,18})\s*/\s*(\d{1,18})\s*")


def with_total(text: str) -> tuple[int, int] | None:
    """Counter and total of a text such as ``5/200``; ``None`` for any other text.

    >>> with_total("5/200"), with_total("5/200 s")
    ((5, 200), None)
    """
    found = _OF_TOTAL.fullmatch(text)
    return None if found is None else (int(found[1]), int(found[2]))


@dataclass(slots=True)
class Counted:
    """What a row counts."""

    values: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    count: int | float | None = None
    total: int | float | None = None
    """The number up to which it counts."""
    epoch: int | float | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any], columns: Columns, epoch: int | float | None) -> Counted:
        """Counter of a row; without a name if it states no counter."""
        name = columns.counter_of(values)
        if name is None:
            return cls()
        return cls(values, name, as_number(values[name]), as_number(values.get(name + TOTAL)), epoch)

    def goes_to_another(self, other: Counted) -> bool:
        """Whether it counts up to another number."""
        return self.total is not None and other.total is not None and self.total != other.total

    def evaluates_unsaid(self, trained: Counted) -> bool:
        """Whether a row with a training loss, behind ``trained``, is of an evaluation that does not say so.

        It lacks the counter of the training, and another one of that is set back; or it counts to another number, in an
        epoch of which all has been counted.
        """
        if self.name != trained.name:
            last = as_number(trained.values.get(self.name))
            return self.count is not None and last is not None and self.count < last
        is_over = trained.count == trained.total and self.epoch is not None and self.epoch == trained.epoch
        return is_over and self.goes_to_another(trained)


class RowSteps:
    """Gives every row its step. A counter that is set back to where it began, or before, begins another run.

    A counter that is set back while the epoch advances counts within the epoch and is counted on. Without a counter the
    epochs or the rows count; a row that says neither belongs to the latest step, and so does one of an evaluation that
    counts its own batches. A row beside the training that states no epoch where others do begins neither an epoch nor
    a run.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._before: dict[int | float, int | float] = {}
        """Steps before each epoch of the run so far: one that is resumed goes on from them."""
        self.restart()

    def restart(self) -> None:
        """Begin another run."""
        self._first: int | float | None = None
        self._last: int | float | None = None
        self._spacing: int | float = 1
        self._offset: int | float = 0
        self._epoch: int | float | None = None
        self._first_epoch: int | float | None = None
        self._step: Any = None
        self._has_evaluated = False
        self._trained = Counted()
        """The latest row that trains."""
        self.is_aside = False
        """Whether the latest row has a counter of its own, and not that of the training."""

    @property
    def latest(self) -> Any:
        """Step of the latest row; ``None`` before the first."""
        return self._step

    def is_back(self, row: Mapping[str, Any]) -> bool:
        """Whether a row states the first count of the run, or one before it."""
        is_counted = self._columns.counter_of(row) is not None
        count = self._columns.count_of(row) if is_counted else epoch_of(row)
        first = self._first if is_counted or self._columns.epochs_count else self._first_epoch
        return count is not None and first is not None and count <= first

    def step(self, row: Mapping[str, Any], trains: bool, *, is_behind: bool = False) -> tuple[Any, bool]:
        """Step of a row, ``None`` if nothing says it, and whether another run begins with it.

        Parameters
        ----------
        is_behind
            Whether the training goes on after the row where it was: no run begins with it.
        """
        epoch, self.is_aside = epoch_of(row), False
        if self._columns.counters:
            return self._by_counter(row, trains, is_behind, epoch)
        places = (self._last, self._first) if self._columns.epochs_count else (self._epoch, self._first_epoch)
        begins = epoch is not None and _is_set_back(epoch, *places)
        if begins:
            self.restart()
        if not self._columns.epochs_count:
            self._count_row(epoch, trains)
        elif epoch is not None:
            self._count(epoch, None)
        return self._step, begins

    def _by_counter(
        self, row: Mapping[str, Any], trains: bool, is_behind: bool, epoch: int | float | None
    ) -> tuple[Any, bool]:
        """Step of a row, and whether a run begins with it, where the log has a counter."""
        now = Counted.of(row, self._columns, epoch)
        count, total = now.count, now.total
        if not now.name:
            self.is_aside = not trains and any(map(_is_total, row))
            return self._step, False
        if count is None:
            return row[now.name], False
        self.is_aside = now.evaluates_unsaid(self._trained) if trains else self._counts_aside(now, count)
        if self.is_aside:
            return self._step, False
        is_next = is_next_epoch(self._columns, epoch, self._epoch, self._last, self._spacing, total)
        is_back = self._last is not None and count < self._last
        is_again = trains and epoch is not None and self._epoch is not None and epoch < self._epoch
        begins = not is_next and (
            _is_set_back(count, self._last, self._first)
            or (trains and is_back and now.goes_to_another(self._trained))
            or (is_again and count == self._last)  # each epoch has left one report, at its end
        )
        if begins and is_behind:
            return self._offset + count, False
        if begins:
            self.restart()
        elif is_next:
            self._offset += self._passed(now, trains=trains)
        self._count(count, epoch)
        if trains:
            self._trained = now
        return self._step, begins

    def _counts_aside(self, now: Counted, count: int | float) -> bool:
        """Whether an evaluation counts its own batches, or states another one of several counters of the training.

        What counts behind the training does so in the same epoch. Without one it may be the begin of another run, but
        for batches.
        """
        is_back = self._last is not None and count < self._last
        if now.epoch is None and self._epoch is not None and is_back:
            return True
        if not self._trained.name:  # an evaluation before any training
            return self._columns.are_batches and now.total is not None
        if now.name != self._trained.name:
            return self._trained.values.get(now.name) is not None
        if now.goes_to_another(self._trained):
            return True
        is_in_epoch = now.epoch is not None and self._epoch is not None and now.epoch >= self._epoch
        return is_back and (self._columns.are_batches or is_in_epoch)

    def _passed(self, now: Counted, *, trains: bool) -> int | float:
        """Steps of the epoch that is over, with the next one's first count; 0 if that goes on from it."""
        count, last = now.count, self._last
        if count is None or last is None or count > last or (count == last and not self._stands_at_end(now, trains)):
            return 0
        if now.total is not None:
            return now.total
        return count if count == last else last + self._spacing - count

    def _stands_at_end(self, now: Counted, trains: bool) -> bool:
        """Whether the latest count, stated again, is that of another epoch.

        A count of the training may stand from epoch to epoch: that of its end. A batch comes again after whole epochs;
        a part of one later the bar that shows it has not been drawn again.
        """
        if trains and now.count == self._trained.count and _are_whole(now.epoch, self._epoch):
            return True
        passed = 1.0 if now.epoch is None or self._epoch is None else now.epoch - self._epoch
        return self._columns.are_batches and abs(passed - max(1.0, round(passed))) < ROUNDED_EPOCHS

    def _count(self, count: int | float, epoch: int | float | None) -> None:
        """Take up a count."""
        if self._last is None:
            self._first = count
            self._offset = self._before.get(epoch, self._offset) if epoch is not None else self._offset
        elif count > self._last:
            self._spacing = count - self._last
        self._last = count
        self._epoch = epoch if epoch is not None else self._epoch
        self._step = self._offset + count
        if epoch is not None and _are_whole(epoch):
            self._before.setdefault(epoch, self._offset)

    def _count_row(self, epoch: int | float | None, trains: bool) -> None:
        """Count a row of the training, and one of an evaluation that follows another one of an epoch before."""
        advances = epoch is not None and self._epoch is not None and epoch > self._epoch
        self._step = (self._step or 0) + (trains or (self._has_evaluated and advances))
        self._has_evaluated = not trains
        if epoch is not None:
            self._first_epoch = epoch if self._epoch is None else self._first_epoch
            self._epoch = epoch


def _is_total(name: str) -> bool:
    """Whether a name is that of the number up to which something other than epochs counts: ``Test: [24/48]``."""
    return name.endswith(TOTAL) and not names_epoch(name.removesuffix(TOTAL))


def _are_whole(*epochs: int | float | None) -> bool:
    return all(epoch is not None and float(epoch).is_integer() for epoch in epochs)


def is_next_epoch(
    columns: Columns,
    epoch: int | float | None,
    before: int | float | None,
    last: int | float | None,
    spacing: int | float,
    total: int | float | None,
) -> bool:
    """Whether the epoch advances; where none is said, or none before, whether batches have been counted to their end.

    That is ``1718/1718``, or ``1700/1718`` where every hundredth is reported. ``1700/1800`` may be followed by the end.
    """
    if epoch is not None and before is not None:
        return epoch > before
    return columns.are_batches and last is not None and total is not None and last + spacing > total


def check_order(path: Path, steps: Iterable[Any]) -> None:
    """Raise :class:`UserError` if training records are in no order of steps: they would be read as many short runs.

    Judged are the first 64, or all that there are, of 6 at least: no more than a sixth of them may lie before all of
    the three before. What begins again with the first step is another run, and workers that are a step apart are in
    order.
    """
    known = [step for step in map(as_number, steps) if step is not None][:MOST_JUDGED]
    backwards = sum(
        step != known[0] and step < min(known[max(0, row - 3) : row]) for row, step in enumerate(known) if row
    )
    if len(known) >= LEAST_JUDGED and 6 * backwards > len(known):
        raise UserError(
            f"{path}: the steps of {backwards} of {len(known)} rows go backwards; "
            "sort its rows by step, of several runs by run and step"
        )


def _is_set_back(count: int | float, last: int | float | None, first: int | float | None) -> bool:
    """Whether a counter is back where it began, or before."""
    return last is not None and first is not None and count < last and count <= first
