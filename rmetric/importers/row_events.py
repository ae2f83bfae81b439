"""Records made of rows, run after run: steps, the begin of another run, evaluations, losses that are empty or 0."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from rmetric.batches import NumberedEvent
from rmetric.importers.columns import Columns
from rmetric.importers.nan_losses import LASTING, EmptyLosses, ZeroLosses
from rmetric.importers.rows import Row, as_measured, is_finite
from rmetric.importers.run_column import RunColumn
from rmetric.importers.run_marks import note, run_begins
from rmetric.importers.steps import RowSteps
from rmetric.measurements import in_convention
from rmetric.records import Event

TAKEN_FOR_NAN = f"{LASTING} rows at least: taken as not finite, for many writers leave NaN empty"
RESUMED = "a resumed run, or another one, is judged by itself from here on"


class RowEvents:
    """Makes events of the rows of a log.

    Parameters
    ----------
    title
        Name of a run that has none.
    columns
        Which of their columns are ours, and what is to be said of each run.
    runs
        The column that names the run of a row; ``None``: there is none.
    """

    def __init__(self, title: str, columns: Columns, runs: RunColumn | None) -> None:
        self._columns, self._runs = columns, runs
        self._losses = columns.fields.get("training_loss", ())
        self._clock, self._aside = RowSteps(columns), _BatchesAside()
        self._empty = EmptyLosses(columns, lambda row: None if runs is None else runs.title(row))
        self._run, self._number, self._line = title, 1, 1
        self._begin()

    def _begin(self) -> None:
        self._zeros, self._was_nan = ZeroLosses(), False
        self._is_first = True
        self._started: set[str] = set()
        self._loss: Any = None
        """The latest loss of the training; ``None``: there was none."""
        self._rate: NumberedEvent | None = None
        """The first row of the run, while it is the only one and states no more than a learning rate."""

    def of(self, rows: Iterable[Row]) -> Iterator[NumberedEvent]:
        """The events; once, for all rows."""
        if self._runs is None:
            yield from ((1, note(text)) for text in self._columns.notes)
        for row in self._empty.rows(rows) if self._losses else rows:
            event: Event = self._columns.values(row.values)
            if row.is_nan:
                event["training_loss"] = math.nan
            self._leave_out_what_starts_late(event)
            if event:
                yield from self._next(row, event)
        yield from self._aside.taken()
        if self._empty.are_told:
            yield self._line, note(f"the last {self._empty.lasting} rows have no training loss")
        yield from self._zeros.notes(self._line)

    def _leave_out_what_starts_late(self, event: Event) -> None:
        for ours in (self._columns.start_late & event.keys()) - self._started:
            if is_finite(event[ours]):
                self._started.add(ours)
            else:
                del event[ours]

    def _next(self, row: Row, event: Event) -> Iterator[NumberedEvent]:
        """Events of a row that says something."""
        named = (None if self._runs is None else self._runs.title(row)) or self._run
        is_other = named != self._run
        latest, loss = None if is_other else self._clock.latest, self._loss
        is_again = row.resumes or (row.begins and self._clock.is_back(row.values))
        if is_other or is_again:
            self._clock.restart()
        trains = "training_loss" in event or not self._losses
        step, restarts = self._clock.step(row.values, trains, is_behind=row.is_behind)
        if not self._clock.is_aside:
            yield from self._aside.taken()
        if is_other or ((restarts or is_again) and loss is not None):
            yield from self._another_run(row, named)
            if row.resumes and latest is not None:
                yield row.line, note(f"step {step}{_beside(loss, event)} comes after step {latest}: {RESUMED}")
        if self._clock.is_aside:
            if step is not None:
                self._aside.add(row.line, step, event.get("validation_loss"))
        elif step is not None:
            yield from self._record(row, step, event)

    def _another_run(self, row: Row, named: str) -> Iterator[NumberedEvent]:
        yield from self._zeros.notes(self._line)
        self._run, self._number = named, self._number + 1 if named == self._run else 1
        self._begin()
        self._empty.restart(row)
        yield row.line, run_begins(named if self._number == 1 else f"{named}-{self._number}")
        yield from ((row.line, note(text)) for text in self._columns.notes)

    def _record(self, row: Row, step: Any, event: Event) -> Iterator[NumberedEvent]:
        if self._columns.counters and self._columns.counter_of(row.values) is None:
            event = {ours: value for ours, value in event.items() if ours in ("validation_loss", "reward")}
        if not event:
            return
        is_rate = bool(self._losses) and event.keys() == {"learning_rate"}
        if is_rate and self._is_first:
            self._is_first, self._rate = False, (row.line, {"step": step} | event)
            return
        if self._rate is not None:  # of the first record, unless other such rows follow
            if is_rate:
                yield self._rate
            else:
                event = {"learning_rate": self._rate[1]["learning_rate"]} | event
        self._is_first, self._rate = False, None
        self._line = row.line
        if row.is_nan and not self._was_nan:
            yield row.line, note(f"the training loss is empty from step {step} on, {TAKEN_FOR_NAN}")
        self._was_nan = row.is_nan or (self._was_nan and "training_loss" not in event)
        self._loss = event.get("training_loss", self._loss)
        self._zeros.add(step, event.get("training_loss"), event.get("grad_norm"))
        yield row.line, {"step": step} | {ours: _in_memory(value) for ours, value in event.items()}


class _BatchesAside:
    """The batches of an evaluation that counts them itself: one evaluation, with their mean."""

    def __init__(self) -> None:
        self._line, self._step = 0, None
        self._losses: list[float] = []

    def add(self, line: int, step: Any, loss: Any) -> None:
        """Take up the loss of a batch, if it has one."""
        number = as_measured(loss)
        if number is not None:
            self._line, self._step = line, step
            self._losses.append(float(number))

    def taken(self) -> Iterator[NumberedEvent]:
        """Event of the evaluation: the mean loss of its batches; none if no batch had one."""
        losses, self._losses = self._losses, []
        if losses:
            yield self._line, {"step": self._step, "validation_loss": in_convention(sum(losses) / len(losses))}


def _beside(before: Any, event: Event) -> str:
    """The loss with which a run goes on, and the latest one: whoever resumes from the wrong state sees a leap."""
    now, before = as_measured(event.get("training_loss")), as_measured(before)
    return "" if now is None or before is None else f" (loss {now:.4g} after {before:.4g})"


def _in_memory(value: object) -> object:
    return in_convention(value) if type(value) is float else value
