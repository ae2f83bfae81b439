"""What an importer says between the records: where another run begins, and what was taken for what."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path

from rmetric.batches import NumberedEvent
from rmetric.errors import UserError
from rmetric.records import Event

RUN = "IMPORTED_RUN"
"""Event before the first record of a run: ``run`` is its name. Only logs that may hold several have it."""
_NAMED = 10
"""Runs that a message names."""
LONGEST_NAME = 80
"""Letters that are taken of a run's name where a log, and no file, has given it."""
NOTE = "IMPORTED_NOTE"
"""Event that says in ``text`` what was taken for what; no damage."""

SELDOM_A_NUMBER = "validation_loss is NaN in most rows, with single numbers between: not measured in those"
NEVER_A_NUMBER = "validation_loss is NaN in all rows: not measured"
"""Notes on what NaN was taken for. Nobody can tell an evaluation that was never made from one that never worked."""


def run_begins(name: str) -> Event:
    """Event that says that the records of another run follow."""
    return {"event": RUN, "run": name}


def note(text: str) -> Event:
    """Event that says what was taken for what."""
    return {"event": NOTE, "text": text}


def runs_in(events: Iterable[NumberedEvent], name: str) -> Iterator[tuple[str, Iterator[NumberedEvent]]]:
    """The runs one after the other, each as ``(its name, its events)``; a run is passed on as it is read.

    No two have the same name: the second ``baseline`` is ``baseline-2``.

    Parameters
    ----------
    name
        Of what stands before the first :data:`RUN`, if anything does.
    """
    rest = iter(events)
    begun = next(rest, None)
    taken: set[str] = set()
    while begun is not None:
        title, head = _title(begun)
        following: list[NumberedEvent] = []
        yield _unlike(title or name, taken), _until_next(chain(head, rest), following)
        begun = following.pop() if following else None


def _unlike(name: str, taken: set[str]) -> str:
    """A name, with a number behind it if another run has it: trackers let all runs be called the same."""
    found = next(one for one in chain([name], (f"{name}-{number}" for number in count(2))) if one not in taken)
    taken.add(found)
    return found


def _title(first: NumberedEvent) -> tuple[str | None, list[NumberedEvent]]:
    if first[1].get("event") == RUN:
        return str(first[1].get("run")), []
    return None, [first]


def _until_next(events: Iterator[NumberedEvent], following: list[NumberedEvent]) -> Iterator[NumberedEvent]:
    for numbered in events:
        if numbered[1].get("event") == RUN:
            following.append(numbered)
            return
        yield numbered


def without_notes(events: Iterable[NumberedEvent], notes: list[str]) -> Iterator[NumberedEvent]:
    """The other events; the texts of the notes go to ``notes``."""
    for line, event in events:
        if event.get("event") == NOTE:
            notes.append(str(event.get("text")))
        else:
            yield line, event


def one_run(events: Iterable[NumberedEvent], path: Path, run: str | None) -> Iterator[NumberedEvent]:
    """The events of one run of a log.

    Raises :class:`UserError` if the log holds several and none is named, or none of that name.
    """
    names: list[str] = []
    for name, of_run in runs_in(events, path.stem):
        names.append(name)
        if name == run or (run is None and len(names) == 1):
            yield from of_run
        else:
            deque(of_run, maxlen=0)
        if name == run:
            return
    if run is not None or len(names) > 1:
        raise not_one(path, names, run)


def not_one(path: str | Path, names: Sequence[str], run: str | None) -> UserError:
    """The error of a log with runs of these names, where one is due: several if ``run`` is ``None``, else none such."""
    shown = ", ".join(map(repr, names[:_NAMED]))
    shown += f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    held = f"{len(names)} run{'s' * (len(names) != 1)}{shown and f' ({shown})'}"
    wanted = "name one with run=" if run is None else f"none is named {run!r}"
    return UserError(f"{path} holds {held}; {wanted}")


def run_names(events: Iterable[NumberedEvent], path: Path) -> list[str]:
    """Names of the runs of a log that hold a record."""
    return [name for name, of_run in runs_in(events, path.stem) if _holds_a_record(of_run)]


def _holds_a_record(events: Iterator[NumberedEvent]) -> bool:
    found = any("event" not in event for _, event in events)
    deque(events, maxlen=0)
    return found
