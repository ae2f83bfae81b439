"""From rows to events: one way for all formats that are not this project's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rmetric.errors import UserError
from rmetric.importers.base import FieldMap
from rmetric.importers.columns import Columns, Row, Rows, Survey, as_number, in_words, late_names
from rmetric.importers.empty import LASTING, EmptyLosses
from rmetric.importers.long_tables import widened
from rmetric.importers.order import in_order
from rmetric.importers.resumed import resumptions
from rmetric.importers.run_column import RunColumn
from rmetric.importers.splits import with_split
from rmetric.importers.steps import MOST_JUDGED, StepClock, check_order
from rmetric.importers.streams import note, run_begins
from rmetric.importers.zeros import ZeroLosses
from rmetric.log_reader import NumberedEvent, OnDamage, passed_over
from rmetric.measurements import in_convention
from rmetric.records import Event

JUDGED_AHEAD = 2 * MOST_JUDGED
"""Events that are made before the first is passed on, so that a log in no order is refused as a whole."""
TAKEN_FOR_NAN = f"{LASTING} rows at least: taken as not finite, for many writers leave NaN empty"
RESUMED = "a resumed run, or another one, is judged by itself from here on"
CLOSING = "train_runtime"
"""Name in the closing entry of the Hugging Face Trainer, which holds the mean loss of the whole run."""


def imported(path: Path, read: Rows, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """Events of a log, run after run.

    Parameters
    ----------
    path
        For messages, and for the names of runs that have none.

    Raises
    ------
    UserError
        If there are rows, but none of their columns is of use.
    """
    fields = FieldMap(mapping)
    read = widened(path, read, fields)
    survey, runs = _surveyed(path, lambda: _observations(read(passed_over)), fields)
    columns = Columns.chosen(survey, fields)
    if survey.rows and not columns.fields:
        why = f"; {columns.notes[0]}" if columns.notes else "; name one with --map training_loss=COLUMN"
        raise UserError(f"{path} has no column of use (its columns: {in_words(survey.seen)}){why}")
    last_line = 1
    rows = late_names(_observations(read(on_damage)), columns, fields)
    if runs is not None:
        rows = runs.apart(path, rows)
        columns.notes.append(runs.note)
    events = in_order(_events(path, resumptions(rows, columns), columns, runs))
    first = list(itertools.islice(events, JUDGED_AHEAD))
    check_order(path, (event["step"] for _, event in first if "training_loss" in event))
    for last_line, event in itertools.chain(first, events):
        yield last_line, event
    for theirs in sorted(fields.taken - columns.known):
        on_damage(last_line, f"--map names {theirs!r}, which no record up to here has")


def run_after_run(runs: Iterable[tuple[str, Iterator[NumberedEvent]]]) -> Iterator[NumberedEvent]:
    """Events of several runs, each by its name. One that is of no use beside others that are is left out, with a note.

    Raises the first run's :class:`UserError` if none of them is of use.
    """
    refused: UserError | None = None
    left_out: list[str] = []
    is_any = False
    for name, events in runs:
        try:
            first = [*itertools.islice(events, 1)]
        except UserError as error:  # a run of pictures, texts or accuracies beside those with losses
            refused, first = refused or error, []
        if not first:
            left_out.append(name)
            continue
        is_any = True
        yield 1, run_begins(name)
        yield from itertools.chain(first, events)
    if is_any and left_out:
        yield 1, note(f"runs of this log that hold nothing of use are left out ({len(left_out)}): {in_words(left_out)}")
    elif refused is not None:
        raise refused


def _surveyed(
    path: Path, observations: Callable[[], Iterator[Row]], fields: FieldMap
) -> tuple[Survey, RunColumn | None]:
    """What the first rows hold, run after run, and the column that names these runs."""
    survey = Survey.of(observations())
    runs = RunColumn.of(observations, survey.seen, fields)
    if runs is not None and runs.in_turn:
        survey = Survey.of(runs.apart(path, itertools.islice(observations(), survey.rows)))
    return survey, runs


def _observations(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows without the closing one with the mean over the whole run; losses named after their split.

    A row of another split without a loss counts in steps of its own, and is left out.
    """
    for row in rows:
        if row.values.get(CLOSING) is None:
            row.values = with_split(row.values)
            if row.values:
                yield row


def _events(path: Path, rows: Iterable[Row], columns: Columns, runs: RunColumn | None) -> Iterator[NumberedEvent]:
    """Records, with what is to be said about each run after them."""
    losses = columns.fields.get("training_loss", ())
    clock, zeros, aside = StepClock(columns), ZeroLosses(), BatchesAside()
    empty = EmptyLosses(columns, runs.title if runs is not None else lambda row: None)
    run, number, line, trained, was_nan = path.stem, 1, 1, 0, False
    if runs is None:
        yield from ((1, note(text)) for text in columns.notes)
    for row in empty.rows(rows) if losses else rows:
        event: Event = columns.values(row.values)
        if row.is_nan:
            event["training_loss"] = math.nan
        if not event:
            continue
        named = (runs.title(row) if runs is not None else None) or run
        latest = clock.latest if named == run else None
        if named != run or row.resumes:
            clock.restart()
        step, restarts = clock.step(row.values, "training_loss" in event or not losses)
        if not clock.is_aside:
            yield from aside.taken()
        if named != run or ((restarts or row.resumes) and trained):
            yield from zeros.notes(line)
            run, number, trained, was_nan = named, 1 if named != run else number + 1, 0, False
            zeros = ZeroLosses()
            empty.restart(row)
            yield row.line, run_begins(run if number == 1 else f"{run}-{number}")
            yield from ((row.line, note(text)) for text in columns.notes)
            if row.resumes and latest is not None:
                yield row.line, note(f"step {step} comes after step {latest}: {RESUMED}")
        if clock.is_aside and "validation_loss" in event:
            aside.add(row.line, step, event["validation_loss"])
            continue
        if columns.counters and columns.counter_of(row.values) is None:
            event = {ours: value for ours, value in event.items() if ours == "validation_loss"}
        if event and step is not None:
            line = row.line
            if row.is_nan and not was_nan:
                yield line, note(f"the training loss is empty from step {step} on, {TAKEN_FOR_NAN}")
            was_nan = row.is_nan or (was_nan and "training_loss" not in event)
            trained += "training_loss" in event
            zeros.add(step, event.get("training_loss"))
            yield line, {"step": step} | {ours: _in_memory(value) for ours, value in event.items()}
    yield from aside.taken()
    if empty.are_told:
        yield line, note(f"the last {empty.lasting} rows have no training loss")
    yield from zeros.notes(line)


class BatchesAside:
    """The batches of an evaluation that counts them itself: one evaluation, with their mean."""

    def __init__(self) -> None:
        self._line, self._step = 0, None
        self._losses: list[float] = []

    def add(self, line: int, step: Any, loss: Any) -> None:
        """Take up the loss of a batch."""
        number = loss if isinstance(loss, float) else as_number(loss)
        self._line, self._step = line, step
        self._losses += [] if number is None else [float(number)]

    def taken(self) -> Iterator[NumberedEvent]:
        """The evaluation, if there was one."""
        losses, self._losses = self._losses, []
        if losses:
            yield self._line, {"step": self._step, "validation_loss": in_convention(sum(losses) / len(losses))}


def _in_memory(value: object) -> object:
    return in_convention(value) if type(value) is float else value
