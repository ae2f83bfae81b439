"""Events made of rows, in one way for all formats that are not this project's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from rmetric.batches import NumberedEvent
from rmetric.errors import UserError
from rmetric.importers.base import CACHED, FieldMap, words_of
from rmetric.importers.column_choice import chosen
from rmetric.importers.columns import Columns, late_names
from rmetric.importers.first_loss import without_first_part
from rmetric.importers.long_tables import widened
from rmetric.importers.names import DATA_WORDS, TEST_WORDS, TRAINING_WORDS, VALIDATION_WORDS, measures_loss
from rmetric.importers.nan_losses import losses_left_empty
from rmetric.importers.order import in_order
from rmetric.importers.progress_bars import Bar
from rmetric.importers.resumed import resumptions
from rmetric.importers.row_events import RowEvents
from rmetric.importers.rows import REWARDS_ALONE, Row, Rows, epoch_of, names_in_words, no_column
from rmetric.importers.run_column import RunColumn
from rmetric.importers.run_marks import note, run_begins
from rmetric.importers.steps import MOST_JUDGED, check_order
from rmetric.importers.survey import Survey
from rmetric.log_lines import WHOLE_LOG, OnDamage, passed_over

JUDGED_AHEAD = 2 * MOST_JUDGED
"""Events that are made before the first is passed on, so that a log in no order is refused as a whole."""
CLOSING, _OF_WHOLE_RUN = "train_runtime", "train_"
"""Name in the closing entry of the Hugging Face Trainer, which holds the mean loss of the whole run."""
COPIED = "each row comes {copies} times, as where several processes print it: once is read"
_USUAL = (
    "split", "phase", "mode", "stage", "subset", "partition", "type", "kind", "event", "tag", "msg", "message", "name",
)  # fmt: skip
_SPLIT_NAMES = frozenset(_USUAL) | {name.capitalize() for name in _USUAL}
"""Columns that may say of which data the numbers of a row are."""
_LONGEST_SPLIT, _MOST_WORDS = 40, 3
"""Letters that are looked at, and words, of a text that names a split."""


def imported(
    path: Path,
    read: Rows,
    mapping: Mapping[str, str],
    on_damage: OnDamage,
    *,
    title: str = "",
    remarks: Mapping[str, str] | None = None,
) -> Iterator[NumberedEvent]:
    """Events of a log, run after run.

    Parameters
    ----------
    path
        For messages.
    title
        Name of a run that has none; that of the file without its ending if empty.
    remarks
        What is to be said of a column of theirs where it is used.

    Raises
    ------
    UserError
        If there are rows, but none of their columns is of use.
    """
    fields = FieldMap(mapping)
    read = widened(path, read, fields)
    survey, runs = _surveyed(path, lambda: _observations(read(passed_over)), fields)
    columns = chosen(survey, fields)
    if survey.rows and columns.fields.keys() <= {"learning_rate", "reward"}:
        _refuse(path, mapping, survey, columns, fields)
    used = {*itertools.chain.from_iterable(columns.fields.values())}
    columns.notes += [text for name, text in (remarks or {}).items() if name in used]
    rows = late_names(_observations(read(on_damage)), columns, fields)
    copies = survey.copies(columns.fields.get("training_loss", ()))
    if copies > 1 and not columns.counters:
        rows = _read_once(rows, copies)
        columns.notes.append(COPIED.format(copies=copies))
    if runs is not None:
        rows = runs.apart(path, rows)
        columns.notes.append(runs.note)
    bar = Bar.of(_observations(read(passed_over)), columns)
    if bar is not None:
        rows = bar.read(rows)
        columns.notes += bar.notes
    events = RowEvents(title or path.stem, columns, runs).of(resumptions(rows, columns))
    events = without_first_part(in_order(events))
    first = list(itertools.islice(events, JUDGED_AHEAD))
    check_order(path, (event["step"] for _, event in first if "training_loss" in event))
    yield from itertools.chain(first, events)
    for theirs in sorted(fields.taken - columns.known):
        on_damage(WHOLE_LOG, no_column(theirs, survey.seen))


def _refuse(path: Path, mapping: Mapping[str, str], survey: Survey, columns: Columns, fields: FieldMap) -> NoReturn:
    """Raise :class:`UserError` for a log without a column of use, with what it has and what can be done."""
    absent = [theirs for theirs in mapping.values() if theirs not in survey.seen]
    if absent:
        raise UserError(f"{path}: {no_column(absent[0], survey.seen)}; name one of these with --map")
    hints = [REWARDS_ALONE] if "reward" in columns.fields else []
    hints = hints + columns.notes[:1] or ["name one with --map training_loss=COLUMN"]
    empty = losses_left_empty(survey, fields)
    has = names_in_words(survey.seen) + (f"; empty in all rows: {names_in_words(empty)}" if empty else "")
    raise UserError(f"{path} has no column of use (its columns: {has}); {'; '.join(hints)}")


def _read_once(rows: Iterator[Row], copies: int) -> Iterator[Row]:
    """The first of each so many neighbouring rows that are the same."""
    groups = itertools.groupby(rows, key=lambda row: row.values)
    return itertools.chain.from_iterable(itertools.islice(same, 0, None, copies) for _, same in groups)


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
        yield (
            1,
            note(
                f"runs of this log that hold nothing of use are left out ({len(left_out)}): {names_in_words(left_out)}"
            ),
        )
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
    """The rows without the Trainer's closing one with the mean over the whole run; losses named after their split.

    A store of metrics by step, such as MLflow's, has that one and the last record in one row. Where each row is one,
    as of many short calls of train(), they are the records. A row of another split without a loss counts in steps of
    its own, and is left out.
    """
    closed: int | float | None = None
    closes = False
    for row in rows:
        closed_before, closes = closes, row.values.get(CLOSING) is not None
        if closes and not closed_before:
            closed = epoch_of(row.values)
            row.values = {name: value for name, value in row.values.items() if not name.startswith(_OF_WHOLE_RUN)}
            if not any(map(measures_loss, row.values)):
                continue
        row.values = _with_split(row.values)
        epoch = None if closed is None else epoch_of(row.values)
        if closed is not None and epoch is not None and epoch < closed:
            row.resumes, closed = True, None  # another call of the Trainer's train()
        if row.values:
            yield row


def _with_split(values: dict[str, Any]) -> dict[str, Any]:
    """Values of a row, its losses named after the split where that is validation or test; empty if it has none then.

    >>> _with_split({"epoch": 1, "phase": "val", "loss": 2.0})
    {'epoch': 1, 'phase': 'val', 'val loss': 2.0}
    >>> _with_split({"step": 1, "split": "train", "loss": 2.0})
    {'step': 1, 'split': 'train', 'loss': 2.0}
    >>> _with_split({"epoch": 1, "iter": 125, "mode": "val", "lr": 0.1, "accuracy": 0.5})
    {}
    """
    if _SPLIT_NAMES.isdisjoint(values):
        return values
    said = (values[column] for column in values if column in _SPLIT_NAMES)
    split = next((text for text in said if isinstance(text, str) and _is_held_out(text)), None)
    if split is None:
        return values
    if not any(map(measures_loss, values)):
        return {}
    return {f"{split} {name}" if _is_bare_loss(name) else name: value for name, value in values.items()}


@lru_cache(CACHED)
def _is_held_out(text: str) -> bool:
    """Whether a text such as ``val`` or ``eval_end`` names other data than those of the training."""
    words = {*words_of(text[:_LONGEST_SPLIT])}
    return len(words) <= _MOST_WORDS and bool(words & (VALIDATION_WORDS | TEST_WORDS)) and not words & TRAINING_WORDS


def _is_bare_loss(name: str) -> bool:
    words = {*words_of(name)}
    return "loss" in words and not words & DATA_WORDS
