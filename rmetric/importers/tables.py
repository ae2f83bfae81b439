"""From rows to events: one way for all formats that are not this project's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from rmetric.errors import UserError
from rmetric.importers.base import FieldMap
from rmetric.importers.columns import Columns, Row, Rows, Survey, in_words, late_names, no_column
from rmetric.importers.long_tables import widened
from rmetric.importers.order import in_order
from rmetric.importers.resumed import resumptions
from rmetric.importers.row_events import RowEvents
from rmetric.importers.run_column import RunColumn
from rmetric.importers.splits import with_split
from rmetric.importers.steps import MOST_JUDGED, check_order
from rmetric.importers.streams import note, run_begins
from rmetric.log_reader import NumberedEvent, OnDamage, passed_over

JUDGED_AHEAD = 2 * MOST_JUDGED
"""Events that are made before the first is passed on, so that a log in no order is refused as a whole."""
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
        absent = [theirs for theirs in mapping.values() if theirs not in survey.seen]
        if absent:
            raise UserError(f"{path}: {no_column(absent[0], survey.seen)}; name one of these with --map")
        why = f"; {columns.notes[0]}" if columns.notes else "; name one with --map training_loss=COLUMN"
        raise UserError(f"{path} has no column of use (its columns: {in_words(survey.seen)}){why}")
    last_line = 1
    rows = late_names(_observations(read(on_damage)), columns, fields)
    if runs is not None:
        rows = runs.apart(path, rows)
        columns.notes.append(runs.note)
    events = in_order(RowEvents(path, columns, runs).of(resumptions(rows, columns)))
    first = list(itertools.islice(events, JUDGED_AHEAD))
    check_order(path, (event["step"] for _, event in first if "training_loss" in event))
    for last_line, event in itertools.chain(first, events):
        yield last_line, event
    for theirs in sorted(fields.taken - columns.known):
        on_damage(last_line, no_column(theirs, survey.seen))


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
