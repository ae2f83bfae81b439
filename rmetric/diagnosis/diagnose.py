"""Diagnose a log, a data frame, or a run in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rmetric.diagnosis.examination import Examination
from rmetric.diagnosis.frames import is_frame, rows_of_frame
from rmetric.diagnosis.new_records import NewRecords
from rmetric.diagnosis.result import Diagnosis
from rmetric.errors import UserError
from rmetric.importers import AUTO, LoggedPortions, portions_of, portions_of_rows
from rmetric.log_reader import observations_of
from rmetric.records import Observations, Run

FRAME = "frame"
"""Format of a data frame, and the name of a run that has none."""


def diagnose(
    subject: str | Path | Run | Observations | Any, *, format: str = AUTO, mapping: Mapping[str, str] | None = None
) -> Diagnosis:
    """Diagnosis of a run.

    Parameters
    ----------
    subject
        Path of a log in any known format, a run, its observations, or a pandas or Polars data frame with one row per
        record.
    format
        Name of the log's format; ``auto`` judges by its content.
    mapping
        Our name of a measurement → the log's or the frame's name of its column.

    Raises
    ------
    UserError
        If the log cannot be read, holds several runs, or lacks what is needed.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"step": range(300), "loss": [2.0 - 0.002 * step for step in range(300)]})
    >>> diagnose(frame).healthy
    True
    """
    found = list(diagnose_runs(subject, format=format, mapping=mapping))
    if len(found) > 1:
        names = ", ".join(repr(one.run) for one in found[:10])
        what = FRAME if is_frame(subject) else subject
        raise UserError(f"{what} holds {len(found)} runs ({names}); use rmetric.diagnosis.diagnose_runs")
    return found[0]


def diagnose_runs(
    subject: str | Path | Run | Observations | Any, *, format: str = AUTO, mapping: Mapping[str, str] | None = None
) -> Iterator[Diagnosis]:
    """The same for each run of a file that holds several."""
    if isinstance(subject, Run):
        yield _examined(subject)
    elif isinstance(subject, Observations):
        yield _examined(Run("run", {}, subject))
    elif is_frame(subject):
        rows, notes = rows_of_frame(subject)
        yield from _of_logs(portions_of_rows(rows, FRAME, mapping), notes=notes)
    elif isinstance(subject, str | Path):
        yield from _of_logs(portions_of(subject, format, mapping), source=str(subject))
    else:
        raise TypeError(f"a path, a run or a data frame is due, not {type(subject).__name__}")


def _of_logs(logs: Iterable[LoggedPortions], source: str = "", notes: Sequence[str] = ()) -> Iterator[Diagnosis]:
    """Diagnoses in bounded memory, however long a log is."""
    for log in logs:
        examination, records = Examination(), NewRecords()
        for portion in log.portions:
            examination.extend(records.of(observations_of(portion)))
            examination.note(event for _, event in portion.events)
        if records.last_step is not None:
            yield examination.diagnosis_of(log, source, notes)


def _examined(run: Run) -> Diagnosis:
    examination = Examination()
    examination.extend(run.observations)
    examination.note(run.events)
    return examination.diagnosis(run.name)
