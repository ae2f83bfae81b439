"""Resumptions: a run goes on from an earlier step, as from a checkpoint after a crash, or is started anew."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain, islice, pairwise, takewhile

from rmetric.importers.columns import Columns
from rmetric.importers.names import names_epoch
from rmetric.importers.rows import Row, as_number, epoch_of
from rmetric.importers.steps import Counted, is_next_epoch

CONFIRMED = 3
"""Training records in a row, each after the one before and none after the last step so far, that are no stray ones."""
MOST_HELD = 64
"""Rows that are held until that is known."""
_Trained = tuple[Row, tuple[int | float | None, bool]]
"""A row, and what :func:`_trained_to` says of it."""


def resumptions(rows: Iterable[Row], columns: Columns) -> Iterator[Row]:
    """The rows; that with which a run is resumed from an earlier step is marked.

    Workers that are a step apart, and single rows out of their order, are left as they are. So is a counter that begins
    again because an epoch is over.
    """
    watch = _Watch(columns)
    trained = ((row, _trained_to(row, columns)) for row in _started_anew(rows, columns))
    for row, to in trained if columns.are_batches else _evaluations_behind(trained, columns):
        yield from watch.add(row, *to)
    yield from watch.held


def _started_anew(rows: Iterable[Row], columns: Columns) -> Iterator[Row]:
    """The rows; where the first one that trains comes again with another loss, a run was given up after one report.

    So it is if the next two each state a later step: where two workers or batches report each step, they do not.
    """
    rest = iter(rows)
    first = [*islice(rest, MOST_HELD)]
    trained = [(row, count) for row in first if (count := _trained_to(row, columns)[0]) is not None]
    starts = [row for row, _ in takewhile(lambda known: known[1] == trained[0][1], trained)]
    after = [count for _, count in trained[len(starts) : len(starts) + 2]]
    if len(after) == 2 and after[0] < after[1]:
        for before, row in pairwise(starts):
            row.begins |= _is_other_start(before, row, columns)
    return chain(first, rest)


def _is_other_start(before: Row, row: Row, columns: Columns) -> bool:
    differs = any(before.values.get(name) != row.values.get(name) for name in columns.fields.get("training_loss", ()))
    return differs and before.values.keys() == row.values.keys() and epoch_of(before.values) == epoch_of(row.values)


def _evaluations_behind(rows: Iterable[_Trained], columns: Columns) -> Iterator[_Trained]:
    """The rows; evaluations of earlier steps than the training are marked, unless that is set back right after them."""
    held: list[_Trained] = []
    last: int | float = -math.inf
    for trained in rows:
        row, (count, _) = trained
        if count is None and len(held) < MOST_HELD and (held or _evaluates_before(last, row, columns)):
            held.append(trained)
            continue
        for waiting, _ in held:
            waiting.is_behind = count is not None and count >= last and _evaluates_before(last, waiting, columns)
        yield from held
        yield trained
        held, last = [], last if count is None else count
    for waiting, _ in held:
        waiting.is_behind = _evaluates_before(last, waiting, columns)
    yield from held


def _evaluates_before(step: int | float, row: Row, columns: Columns) -> bool:
    """Whether a row is of an evaluation before a step."""
    count = columns.count_of(row.values)
    return count is not None and count < step and "validation_loss" in columns.values(row.values)


def _trained_to(row: Row, columns: Columns) -> tuple[int | float | None, bool]:
    """Step of a training row, and whether that is an epoch; ``None``: it does not train, or states no step."""
    loss = columns.fields.get("training_loss")
    if loss is not None and row.values.get(loss[0]) is None:
        return None, False
    if columns.epochs_count:
        return epoch_of(row.values), True
    counter = columns.counter_of(row.values)
    return (None, False) if counter is None else (as_number(row.values[counter]), names_epoch(counter))


class _Watch:
    def __init__(self, columns: Columns) -> None:
        self.held: list[Row] = []
        """Rows from a first one that goes back on, of which it is not known yet whether they go on from there."""
        self._columns = columns
        self._again: list[int | float] = []
        """Steps of the held rows that train."""
        self._last: int | float | None = None
        self._spacing: int | float = 1
        self._epoch: int | float | None = None
        self._trained = Counted()
        """The latest row that trains."""

    def add(self, row: Row, count: int | float | None, is_epoch: bool) -> list[Row]:
        """The rows that can be passed on now that another one has come, which trains to ``count``."""
        if count is None:
            return self._pass_on(row) if not self.held or len(self.held) == MOST_HELD else self._hold(row)
        epoch, before = None if is_epoch else epoch_of(row.values), self._epoch
        now = Counted.of(row.values, self._columns, epoch)
        if now.evaluates_unsaid(self._trained):
            return self._pass_on(row)
        self._trained = now
        next_epoch = is_next_epoch(self._columns, epoch, before, self._last, self._spacing, now.total)
        if next_epoch or self._last is None or count >= self._last:
            if self._last is not None and count > self._last:
                self._spacing = count - self._last
            self._last = count if next_epoch or self._last is None else max(count, self._last)
            self._epoch = epoch if epoch is not None else before
            return self._pass_on(row)
        if self._again and count <= self._again[-1]:  # back once more: what is held was aborted
            passed = self._pass_on()
            self._again = [count]
            self._hold(row)
            return passed
        self._again.append(count)
        self._hold(row)
        if len(self._again) < CONFIRMED:
            return []
        self.held[0].resumes, self._last, self._epoch = True, count, epoch
        return self._pass_on()

    def _hold(self, row: Row) -> list[Row]:
        self.held.append(row)
        return []

    def _pass_on(self, *rows: Row) -> list[Row]:
        held, self.held, self._again = self.held, [], []
        return [*held, *rows]
