"""Batches: consecutive records of a log that become columns at once, instead of one dictionary after another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric.measurements import MEASUREMENTS, VERDICTS
from rmetric.records import MAX_STEP, Event

NumberedEvent = tuple[int, Event]
"""Line number and event."""
COLUMNS = (*MEASUREMENTS, *VERDICTS)
"""Numbers that a record may hold beside its step."""
FEWEST = 8
"""Records from which on a batch is faster than one record after another."""
_PLACES = {name: place for place, name in enumerate(COLUMNS)}
_APART = {"non_finite", "mechanism"}
"""Fields that have to be looked into record by record."""
_NUMBERS = {float, int}


class RecordBatch(dict[str, Any]):
    """Consecutive METRICS records, each with the same fields and with usable numbers alone.

    It takes their place in a stream of events, under the number of their first line; the other lines follow. As an
    event it is empty, so that who looks for an event of another kind passes it by.
    """

    def __init__(
        self,
        rows: Callable[[], Sequence[Event]],
        step: NDArray[np.int64],
        numbers: NDArray[np.float64],
        alerts: Sequence[Any],
    ) -> None:
        super().__init__()
        self.rows = rows
        """Makes the records as the log has them."""
        self.step = step
        """Shape (n,), strictly increasing."""
        self.numbers = numbers
        """Shape (n, columns), in the order of :data:`COLUMNS`; NaN: not measured."""
        self.alerts = alerts
        """``alerts`` of each record, whatever that is; ``None``: it has none."""

    @classmethod
    def of(cls, rows: Sequence[Event]) -> RecordBatch | None:
        """Batch of METRICS records with the same fields; ``None`` if one of them has fields that are no numbers."""
        fields = rows[0].keys()
        if not {"event", "step"} <= fields or not _APART.isdisjoint(fields):
            return None
        names = [name for name in COLUMNS if name in fields]
        kinds, steps, *columns = zip(*map(itemgetter("event", "step", *names), rows), strict=True)
        types_of_numbers = set(map(type, chain.from_iterable(columns)))
        if kinds.count("METRICS") < len(rows) or set(map(type, steps)) != {int} or not types_of_numbers <= _NUMBERS:
            return None
        try:
            step, given = np.array(steps, dtype=np.int64), np.array(columns, dtype=np.float64)
        except OverflowError:  # a whole number beyond those of a step, or beyond all doubles
            return None
        if not (step[0] >= 0 and step[-1] < MAX_STEP and (step[:-1] < step[1:]).all()):
            return None
        values = np.full((len(rows), len(COLUMNS)), math.nan)
        values[:, [_PLACES[name] for name in names]] = given.T
        return cls(lambda: rows, step, values, [record.get("alerts") for record in rows])

    def latest(self, name: str) -> float:
        """A number of the last record; NaN: not measured."""
        return float(self.numbers[-1, _PLACES[name]])


def batched(events: Sequence[Event], line: int) -> Iterator[NumberedEvent]:
    """The events of consecutive lines, the first of them ``line``; records that allow it are put together."""
    begin = 0
    for _, alike in groupby(map(tuple, events)):  # by names and order of the fields
        end = begin + len(list(alike))
        rows = events[begin:end]
        batch = RecordBatch.of(rows) if len(rows) >= FEWEST else None
        if batch is None:
            yield from enumerate(rows, line + begin)
        else:
            yield line + begin, batch
        begin = end
