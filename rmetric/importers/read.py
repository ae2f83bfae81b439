"""Whole runs out of a log of any known format: :func:`read_run` for a log of one run, :func:`read_runs` for all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rmetric.batches import NumberedEvent
from rmetric.dataset.sources import data_set_of
from rmetric.errors import UserError
from rmetric.importers.base import IMPORTERS
from rmetric.importers.format import AUTO, format_of
from rmetric.importers.rows import Rows
from rmetric.importers.run_marks import not_one, run_names, runs_in, without_notes
from rmetric.importers.tables import imported
from rmetric.log_lines import WHOLE_LOG, OnDamage, passed_over, plain_text, strict
from rmetric.log_reader import CHUNK_RECORDS, WHOLE, Chunk, assemble, chunks
from rmetric.records import Run

MOST_DAMAGE = 5
"""Reports of damage that are told one by one."""
SKIPPED = ("skipped", "left out")
"""Ends of a report of damage that is about a whole line."""
OWN_FORMATS = ("rmetric", "data set", "memory")
"""Formats of the logs of studies, and of runs that come from no log; all others are those of other programs."""


class Caveats(NamedTuple):
    """What to know of a run before its records are believed."""

    notes: list[str]
    """Damage, and what was taken for what."""
    left_out: int
    """Lines that were skipped."""
    damaged: int
    """Other lines of which a part could not be used."""
    first_damage: str = ""
    """The first report of damage; empty if there is none."""


@dataclass(frozen=True)
class LoggedRun:
    """A run as its log has it."""

    run: Run
    format: str
    """Name of the log's format."""
    caveats: Caveats

    @property
    def notes(self) -> list[str]:
        """Damage, and what was taken for what."""
        return self.caveats.notes


def read_run(
    path: str | Path,
    on_damage: OnDamage | None = None,
    *,
    run: str | None = None,
    format: str = AUTO,
    mapping: Mapping[str, str] | None = None,
) -> Run:
    """Read one run from a log in any known format into memory.

    Parameters
    ----------
    path
        A log, a folder that is one (TensorBoard, W&B, MLflow), or a data set.
    on_damage
        Receives ``(line, message)`` for what cannot be used; without it, damage is an error, but a last line that was
        cut off (as by a kill) is a warning.
    run
        Name of the run, needed where a log holds several.
    format
        Name of the format; ``auto`` judges by the content.
    mapping
        Our name of a measurement → the log's.

    Raises
    ------
    UserError
        If it cannot be read, is of no known format, holds no record, is damaged (without ``on_damage``), holds several
        runs and none is named, or none of that name.
    """
    found = read_runs(path, on_damage, format=format, mapping=mapping)
    if run is None and len(found) == 1:
        return found[0]
    chosen = [one for one in found if one.name == run]
    if not chosen:
        raise not_one(path, [one.name for one in found], run)
    return chosen[0]


def read_runs(
    path: str | Path,
    on_damage: OnDamage | None = None,
    *,
    format: str = AUTO,
    mapping: Mapping[str, str] | None = None,
) -> list[Run]:
    """Read all runs of a log, in its order; parameters and errors as those of :func:`read_run`."""
    file = Path(path)
    read = partial(_read, file, format, mapping or {}, WHOLE)
    runs = (assemble(title, portions) for title, _, portions, _ in _portions(file, read, on_damage or strict(path)))
    return [run for run in runs if len(run.observations)]


def runs_of(path: str | Path, format: str = AUTO, mapping: Mapping[str, str] | None = None) -> Iterator[LoggedRun]:
    """The runs of a log, each with its damage and what was taken for what as notes; errors as in :func:`read_run`."""
    for log in portions_of(path, format, mapping, records=WHOLE):
        run = assemble(log.name, log.portions)
        if len(run.observations):
            yield LoggedRun(run, log.format, log.caveats())


@dataclass(frozen=True)
class LoggedPortions:
    """A run of a log, portion by portion."""

    name: str
    format: str
    portions: Iterable[Chunk]
    """Records in their order, with the events between them."""
    caveats: Callable[[], Caveats]
    """To be asked once, when the portions have been taken."""


def portions_of(
    path: str | Path, format: str = AUTO, mapping: Mapping[str, str] | None = None, *, records: int = CHUNK_RECORDS
) -> Iterator[LoggedPortions]:
    """The runs of a log, each portion by portion in bounded memory: take the portions of a run before the next one.

    Parameters
    ----------
    records
        Most records of a portion.

    Raises
    ------
    UserError
        If the log cannot be read, is of no known format, or held no record.
    """
    file, damage = Path(path), Damage()
    read = partial(_read, file, format, mapping or {}, records)
    return _told(_portions(file, read, damage.add), damage)


def portions_of_rows(rows: Rows, what: str, mapping: Mapping[str, str] | None) -> Iterator[LoggedPortions]:
    """Runs of rows that stand in no file, in portions, as :func:`portions_of` reads them from one.

    Parameters
    ----------
    what
        What they come from: the format, what messages say in place of a path, the name of a run that has none.
    """
    damage = Damage("row")

    def read(on_damage: OnDamage) -> Iterator[_InPortions]:
        runs = runs_in(imported(Path(what), rows, mapping or {}, on_damage), what)
        return _in_portions(what, runs, on_damage, CHUNK_RECORDS)

    return _told(_portions(what, read, damage.add), damage)


def _told(runs: Iterable[_InPortions], damage: Damage) -> Iterator[LoggedPortions]:
    for title, name, portions, notes in runs:
        yield LoggedPortions(title, name, portions, partial(damage.told, notes))


class Damage:
    """Reports of damage: the first ones, and their number."""

    def __init__(self, place: str = "line") -> None:
        self._place = place
        self._first: list[str] = []
        self._count = 0
        self._skipped, self._damaged = _Lines(), _Lines()

    def add(self, line: int, message: str) -> None:
        self._count += 1
        (self._skipped if message.endswith(SKIPPED) else self._damaged).add(line)
        if len(self._first) < MOST_DAMAGE:
            self._first.append(message if line == WHOLE_LOG else f"{self._place} {line}: {message}")

    def so_far(self, notes: Sequence[str] = ()) -> Caveats:
        """Other notes, and the damage until now."""
        more = self._count - len(self._first)
        reports = [*self._first, *([f"{more} more reports of damage"] if more else [])]
        first = self._first[0] if self._first else ""
        return Caveats([*notes, *reports], self._skipped.count, self._damaged.count, first)

    def told(self, notes: Sequence[str]) -> Caveats:
        """Other notes, and the damage until now, which is then forgotten: the next run begins without any."""
        told = self.so_far(notes)
        self._first, self._count, self._skipped, self._damaged = [], 0, _Lines(), _Lines()
        return told


class _Lines:
    """Number of lines that are named in their order, each once or more."""

    def __init__(self) -> None:
        self.count, self._latest = 0, 0

    def add(self, line: int) -> None:
        self.count += line != self._latest
        self._latest = line


def runs_named_in(path: str | Path, format: str, mapping: Mapping[str, str] | None) -> list[str | None]:
    """Names of the runs of a log, for ``run``; a single ``None`` where it need not be named, or cannot be read."""
    file = Path(path)
    try:
        name, events = events_of(file, format, mapping, passed_over)
        if name == "rmetric":  # one run a file
            return [None]
        found = run_names(events, file)
    except (UserError, OSError):
        return [None]
    return [None] if len(found) < 2 else [*found]


_InPortions = tuple[str, str, Iterable[Chunk], list[str]]
"""Name, format, portions and notes of a run; the notes are there once the portions have been taken."""


def _portions(
    what: str | Path, read: Callable[[OnDamage], Iterator[_InPortions]], on_damage: OnDamage
) -> Iterator[_InPortions]:
    """The runs that are read of something; raises :class:`UserError` at the end if no portion held a record."""
    first: list[str] = []
    found = False

    def report(line: int, message: str) -> None:
        if not first:
            first.append(message)
        on_damage(line, message)

    def seen(portions: Iterable[Chunk]) -> Iterator[Chunk]:
        nonlocal found
        for portion in portions:
            found = found or len(portion.step) > 0
            yield portion

    for title, name, portions, notes in read(report):
        yield title, name, seen(portions), notes
    if not found:
        raise UserError(f"{what} has no record that could be used{f' ({first[0]})' if first else ''}; check the file")


def _read(
    file: Path, format: str, mapping: Mapping[str, str], records: int, on_damage: OnDamage
) -> Iterator[_InPortions]:
    if data_set_of(file) is not None:
        from rmetric.dataset.read import read_stored  # opening Parquet is of use here alone

        yield from ((stored.name, "data set", (stored.chunk,), []) for stored in read_stored(file))
        return
    name, events = events_of(file, format, mapping, on_damage)
    yield from _in_portions(name, runs_in(events, file.stem), on_damage, records)


def _in_portions(
    name: str, runs: Iterable[tuple[str, Iterator[NumberedEvent]]], on_damage: OnDamage, records: int
) -> Iterator[_InPortions]:
    for title, events in runs:
        notes: list[str] = []
        yield title, name, chunks(without_notes(events, notes), on_damage, records), notes


def events_of(
    file: Path, format: str, mapping: Mapping[str, str] | None, on_damage: OnDamage
) -> tuple[str, Iterator[NumberedEvent]]:
    """Name of a log's format, and its events, run after run.

    Raises :class:`UserError` if it cannot be read or is of no known format, also while the events are taken.
    """
    shown = plain_text(file)
    with readable(shown):
        name = format_of(file, format, mapping)
        return name, _guarded(IMPORTERS[name](file, mapping or {}, on_damage), shown)


def _guarded(events: Iterator[NumberedEvent], file: str | Path) -> Iterator[NumberedEvent]:
    """Events as they are read; an error in reading names the log, whatever else is going on meanwhile."""
    with readable(file):
        yield from events


@contextmanager
def readable(file: str | Path) -> Iterator[None]:
    """Raise what the system says of a log as a :class:`UserError` that names it."""
    try:
        yield
    except IsADirectoryError as error:
        raise UserError(f"{file} is a folder and no log itself; name a log in it") from error
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}); check the path and its permissions") from error
