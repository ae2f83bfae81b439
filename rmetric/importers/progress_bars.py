"""Losses that a progress bar shows: the mean of an epoch so far, one that is set now and then, a count drawn again."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from rmetric.importers.columns import Columns
from rmetric.importers.names import TOTAL
from rmetric.importers.rows import Row, as_number, epoch_of
from rmetric.importers.survey import SURVEYED_ROWS

LEAST_ROWS, LEAST_EPOCH_ROWS = 40, 8
"""Rows after the first epoch, and of an epoch, from which on a mean is told from the losses of batches."""
CALMER = 3.0
"""How many times as much a mean of the epoch so far changes in the first quarter of an epoch as in the last: seven, if
its batches differ by chance; their own losses change as much in both."""
LEAST_CHANGES, HELD = 8, 2.5
"""Changes of a value, and rows from one to the next, from which on it is one that is set now and then."""
MEAN = "the loss is the mean of its epoch so far, as progress bars show it: of each epoch the last one counts"
SET = "the loss is set every {every} rows, as in the text of a progress bar: rows that repeat it are left out"


@dataclass(frozen=True)
class _Place:
    """Place of a row of the training within its epoch."""

    epoch: Any
    count: int | float

    @classmethod
    def of(cls, row: Row, columns: Columns) -> _Place | None:
        count = columns.count_of(row.values)
        return None if count is None else cls(epoch_of(row.values), count)

    def begins_after(self, before: _Place) -> bool:
        """Whether this row stands in another epoch than the row before."""
        return self.count < before.count or self.epoch != before.epoch


@dataclass(frozen=True)
class Bar:
    """How the loss of a log with a bar is to be read."""

    columns: Columns
    loss: str
    begins_at_0: bool = True
    """Whether a count of 0 is that of a batch; where counts reach their number, it is a bar before its first batch."""
    is_ahead: bool = False
    """Whether a loss is shown before its batch is counted, so that it is the first one at its count: tqdm's loops set
    it so, and the bar has one at 0 already, and one alone when it is full. Others count first, and draw the bar with
    the loss of the batch before."""
    is_mean: bool = False
    held_rows: int = 1
    """Rows for which a value is shown."""

    @classmethod
    def of(cls, rows: Iterable[Row], columns: Columns) -> Bar | None:
        """The bar of a log, by its first rows; ``None`` where batches are not counted up to a number."""
        losses, counters = columns.fields.get("training_loss", ()), columns.counters
        if len(losses) != 1 or not columns.are_batches or columns.known.isdisjoint(name + TOTAL for name in counters):
            return None
        first = [*itertools.islice(rows, SURVEYED_ROWS)]
        is_filled = any(row.values.get(name, "") == row.values.get(name + TOTAL) for row in first for name in counters)
        bar = cls(columns, losses[0], begins_at_0=not is_filled)
        bar = replace(bar, is_ahead=bar._shows_before_it_counts(first))
        epochs = bar._epochs(first)
        shown = [len([*same]) for _, same in itertools.groupby(itertools.chain.from_iterable(epochs))]
        every = round(median(shown[1:-1])) if len(shown) > LEAST_CHANGES else 1
        if every >= HELD and sum(shown) >= HELD * len(shown):
            return replace(bar, held_rows=every)
        return replace(bar, is_mean=_grow_calmer(epochs[1:]))

    @property
    def notes(self) -> list[str]:
        """Notes for the user on how the loss is read; none if it is read as it stands."""
        return [MEAN] if self.is_mean else [SET.format(every=self.held_rows)] if self.held_rows > 1 else []

    def read(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows that tell something new."""
        return self._last_of_epochs(self._begun(rows)) if self.is_mean else self._news(self._one_a_count(rows))

    def _begun(self, rows: Iterable[Row]) -> Iterator[tuple[Row, _Place | None]]:
        """The rows with their places, but for those of a bar before its first batch."""
        placed = ((row, self._place(row)) for row in rows)
        return ((row, place) for row, place in placed if place is None or place.count or self.begins_at_0)

    def _place(self, row: Row) -> _Place | None:
        return None if row.values.get(self.loss) is None else _Place.of(row, self.columns)

    def _shows_before_it_counts(self, rows: Iterable[Row]) -> bool:
        """Whether the first loss is shown at 0, or later than at 1 in a log whose full bars have one loss.

        Who counts first draws the full bar with the loss of the batch before as well.
        """
        placed = [(place, row) for row in rows if (place := self._place(row)) is not None and not self._evaluates(row)]
        if not placed or placed[0][0].count <= 1:
            return bool(placed) and placed[0][0].count == 0
        full = [(place, str(row.values[self.loss])) for place, row in placed if self._is_full(row)]  # NaN is like NaN
        return not any(one[0] == other[0] and one[1] != other[1] for one, other in itertools.pairwise(full))

    def _is_full(self, row: Row) -> bool:
        """Whether its count is the number up to which it counts."""
        return self.columns.count_of(row.values) == row.values.get(f"{self.columns.counter_of(row.values)}{TOTAL}")

    def _evaluates(self, row: Row) -> bool:
        return bool(self._evaluations(row))

    def _evaluations(self, row: Row) -> list[Any]:
        found = (row.values.get(name) for name in self.columns.fields.get("validation_loss", ()))
        return [value for value in found if value is not None]

    def _epochs(self, rows: Iterable[Row]) -> list[list[float]]:
        """Losses of each epoch, one a count."""
        epochs: list[list[float]] = [[]]
        before: _Place | None = None
        for row, place in self._one_a_count(rows):
            loss = as_number(row.values.get(self.loss))
            if place is None or loss is None or place == before:
                continue
            if before is not None and place.begins_after(before):
                epochs.append([])
            epochs[-1].append(loss)
            before = place
        return epochs

    def _one_a_count(self, rows: Iterable[Row]) -> Iterator[tuple[Row, _Place | None]]:
        """The rows, of those that are drawn again at a count only the one with the loss of its batch."""
        before: _Place | None = None
        held: tuple[Row, _Place] | None = None
        for row, place in self._begun(rows):
            is_of_bar = place is not None and not self._evaluates(row)
            is_again = is_of_bar and place == before
            if is_again and held is None:
                continue
            if held is not None and not is_again:
                yield held
            held = None
            if place is None or not is_of_bar or self.is_ahead:
                yield row, place
            else:
                held = row, place
            before = before if place is None else place
        if held is not None:
            yield held

    def _last_of_epochs(self, rows: Iterable[tuple[Row, _Place | None]]) -> Iterator[Row]:
        held: tuple[Row, _Place] | None = None
        for row, place in rows:
            is_over = self._evaluates(row) if place is None else held is not None and place.begins_after(held[1])
            if held is not None and is_over:
                yield held[0]
                held = None
            if place is None:
                yield row
            else:
                held = row, place
        if held is not None:
            yield held[0]

    def _news(self, rows: Iterable[tuple[Row, _Place | None]]) -> Iterator[Row]:
        """Each value once, those of evaluations as well; one that stays for longer than others is none that is held."""
        shown, evaluated, repeated = None, list[Any](), 0
        for row, place in rows:
            if place is None:
                yield row
                continue
            repeated = repeated + 1 if row.values[self.loss] == shown else 0
            is_news = repeated == 0 or self.held_rows == 1 or repeated >= 2 * self.held_rows
            shown, before = row.values[self.loss], evaluated
            evaluated = self._evaluations(row) or before
            if is_news or evaluated != before:
                row.values = row.values if is_news else {**row.values, self.loss: None}
                yield row


def _grow_calmer(epochs: list[list[float]]) -> bool:
    """Whether losses change less and less within each epoch."""
    long = [losses for losses in epochs if len(losses) >= LEAST_EPOCH_ROWS]
    if sum(map(len, long)) < LEAST_ROWS:
        return False
    ratios = []
    for losses in long:
        changes = [abs(after - before) for before, after in itertools.pairwise(losses)]
        quarter = max(2, len(changes) // 4)
        first, last = median(changes[:quarter]), median(changes[-quarter:])
        ratios.append(first / last if last > 0.0 else CALMER * (first > 0.0))
    return median(ratios) >= CALMER
