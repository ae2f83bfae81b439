"""Losses that may stand for NaN: left empty, as many writers leave it, or exactly 0, as one writes it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rmetric.batches import NumberedEvent
from rmetric.importers.base import FieldMap
from rmetric.importers.columns import Columns
from rmetric.importers.names import means_loss
from rmetric.importers.rows import Row, epoch_of
from rmetric.importers.run_marks import note
from rmetric.importers.survey import Survey

KNOWN, LASTING = 20, 20
"""Rows with a loss before, and rows in a row without one, from which on an empty loss is taken for NaN."""
RARE = 20
"""Rows with a loss for each that was empty before, at least: a column that is seldom filled says nothing by a gap."""
MOST_HELD = 64
"""Rows that are held until that is known, those between that say something else among them."""
TOLD = 3
"""Rows without a loss at the end, not taken for NaN, that are worth a word where every row before had one."""
LEAST_BEFORE_ZERO, BEFORE_ZERO = 1e-2, 3
"""Least that one of so many losses before the first 0 is: one that falls to 0 by itself gets smaller first."""
ZEROS_IN_A_ROW = 3


def losses_left_empty(survey: Survey, fields: FieldMap) -> list[str]:
    """Losses of which no row has a value, in a log that has no other."""
    losses = [name for name in survey.empty if means_loss(name, fields)]
    return [] if any(means_loss(name, fields) for name in survey.seen) else losses


class EmptyLosses:
    """Looks for a training loss that was in nearly every row, and is null or an empty cell from some row on.

    ``orjson``, JavaScript and the tables of pandas write NaN that way. A row counts that says nothing beyond what the
    latest one with a loss said: others are evaluations, or learning rates in rows of their own.

    Parameters
    ----------
    run_of
        Name of the run of a row, where the log has one.
    """

    def __init__(self, columns: Columns, run_of: Callable[[Row], str | None]) -> None:
        self._columns, self._names, self._run_of = columns, columns.fields.get("training_loss", ()), run_of
        self._latest = Row(0, {})
        self._known = self._passed = 0
        self._held: list[Row] = []
        self.lasting = 0
        """Rows in a row without a loss, by now."""

    def rows(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows; those whose empty loss stands for NaN are marked, from the first of them on."""
        for row in rows:
            if all(row.values.get(name) is not None for name in self._names):
                yield from self._released()
                self._passed += self.lasting
                self._known, self.lasting, self._latest = self._known + 1, 0, row
                yield row
            elif self._lacks_it(row):
                yield from self._add(row)
            elif self._held:
                yield from self._hold(row)
            else:
                yield row
        yield from self._released()

    def restart(self, first: Row) -> None:
        """Forget the runs before the one that begins with a row."""
        self._known, self._passed = int(first is self._latest), 0

    @property
    def are_told(self) -> bool:
        """Whether the last rows without a loss are worth a word, though it is open what they mean."""
        are_few = self.lasting < LASTING and self._may_be_nan
        followed_few = 0 < self._known < KNOWN and not self._passed  # as NaN, or with a loss of every hundredth row
        return self.lasting >= TOLD and (are_few or followed_few)

    @property
    def _may_be_nan(self) -> bool:
        return self._known >= max(KNOWN, RARE * self._passed)

    def _add(self, row: Row) -> Iterator[Row]:
        """Take up a row without a loss."""
        if self._goes_back(row):
            yield from self._released()
            self._known = self._passed = self.lasting = 0
        self.lasting += 1
        row.lacks_loss = True
        if not self._may_be_nan:
            yield row
        elif self.lasting < LASTING:
            yield from self._hold(row)
        else:
            self._held.append(row)
            for held in self._held:
                held.is_nan = held.lacks_loss
            yield from self._released()

    def _hold(self, row: Row) -> Iterator[Row]:
        if len(self._held) == MOST_HELD:
            yield from self._released()
        self._held.append(row)

    def _released(self) -> list[Row]:
        held, self._held = self._held, []
        return held

    def _lacks_it(self, row: Row) -> bool:
        values, latest = row.values, self._latest.values
        empty = any(name in values and values[name] is None for name in self._names)
        return empty and all(value is None or latest.get(name) is not None for name, value in values.items())

    def _goes_back(self, row: Row) -> bool:
        """Whether a row is of another run than the latest loss."""
        if self._run_of(row) != self._run_of(self._latest):
            return True
        count, latest = map(self._columns.count_of, (row.values, self._latest.values))
        epoch, latest_epoch = map(epoch_of, (row.values, self._latest.values))
        return _is_before(epoch, latest_epoch) or (_is_before(count, latest) and not _is_before(latest_epoch, epoch))


def _is_before(one: int | float | None, other: int | float | None) -> bool:
    return one is not None and other is not None and one < other


class ZeroLosses:
    """Looks for a training loss that drops to exactly 0 and stays there to the end.

    Hugging Face's Trainer logs 0 for NaN by default; a loss of 0 is right for some objectives. The values are left
    as they are.
    """

    def __init__(self) -> None:
        self._before: deque[float] = deque(maxlen=BEFORE_ZERO)
        self._first: Any = None
        self._count = 0

    def add(self, step: Any, loss: Any, norm: Any) -> None:
        """The next record; a loss of 0 with a finite gradient norm above 0 is one, as in GRPO."""
        if not isinstance(loss, int | float):
            return
        if loss != 0:
            self._before.append(loss)
        if loss != 0 or (isinstance(norm, int | float) and 0 < norm < math.inf):
            self._count = 0
            return
        self._count += 1
        self._first = step if self._count == 1 else self._first

    def notes(self, line: int) -> Iterator[NumberedEvent]:
        """The suspicion, if there is one; for a log of nothing but zeros as well."""
        if self._count >= ZEROS_IN_A_ROW and not (self._before and max(self._before) < LEAST_BEFORE_ZERO):
            after = f" (the loss before was {max(self._before):.4g})" if self._before else ""
            yield (
                line,
                note(
                    f"the training loss is exactly 0 from step {self._first} on, in {self._count} records{after}: "
                    "the Hugging Face Trainer writes 0 for NaN, unless logging_nan_inf_filter=False"
                ),
            )
