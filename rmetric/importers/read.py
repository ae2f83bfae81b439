"""Whole runs out of a log of any known format: :func:`read_run` for a log of one run, :func:`read_runs` for all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rmetric.dataset.sources import data_set_of
from rmetric.errors import UserError
from rmetric.importers.base import IMPORTERS
from rmetric.importers.files import AUTO, detect_format
from rmetric.importers.streams import run_names, runs_in, without_notes
from rmetric.log_reader import OnDamage, assemble, chunks
from rmetric.records import Run

MOST_DAMAGE = 5
"""Reports of damage that are told one by one."""
SINGLE = ("rmetric", "trainer_state")
"""Formats of one run a file."""
_NAMED = 10
"""Runs that a message names."""


@dataclass(frozen=True)
class LoggedRun:
    """A run as its log has it."""

    run: Run
    format: str
    """Name of the log's format."""
    notes: list[str] = field(default_factory=list)
    """Damage, and what was taken for what."""


def read_run(
    path: str | Path,
    on_damage: OnDamage | None = None,
    *,
    run: str | None = None,
    format: str = AUTO,
    mapping: Mapping[str, str] | None = None,
) -> Run:
    """Read a run of a log of any known format into memory.

    Parameters
    ----------
    path
        A log, a folder that is one (TensorBoard, W&B, MLflow), or a data set.
    on_damage
        Receives ``(line, message)`` for what cannot be used; without it, the first damage is an error.
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
    if chosen:
        return chosen[0]
    names = ", ".join(repr(one.name) for one in found[:_NAMED])
    names += f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    wanted = "name one with run=" if run is None else f"none is named {run!r}"
    raise UserError(f"{path} holds {len(found)} run{'s' if len(found) > 1 else ''} ({names}); {wanted}")


def read_runs(
    path: str | Path,
    on_damage: OnDamage | None = None,
    *,
    format: str = AUTO,
    mapping: Mapping[str, str] | None = None,
) -> list[Run]:
    """Read all runs of a log, in its order; parameters and errors as those of :func:`read_run`."""

    def strictly(line: int, message: str) -> None:
        raise UserError(f"{path}, line {line}: {message}")

    return [run for run, _, _ in _runs(Path(path), format, mapping or {}, on_damage or strictly)]


def runs_of(path: str | Path, format: str = AUTO, mapping: Mapping[str, str] | None = None) -> Iterator[LoggedRun]:
    """The runs of a log, each with its damage and what was taken for what as notes; errors as in :func:`read_run`."""
    damage: list[str] = []
    for run, name, notes in _runs(
        Path(path), format, mapping or {}, lambda line, text: damage.append(f"line {line}: {text}")
    ):
        more = [f"{len(damage) - MOST_DAMAGE} more reports of damage"] if len(damage) > MOST_DAMAGE else []
        yield LoggedRun(run, name, [*notes, *damage[:MOST_DAMAGE], *more])
        damage.clear()


def runs_named_in(path: str | Path, format: str = AUTO, mapping: Mapping[str, str] | None = None) -> list[str | None]:
    """Names of the runs of a log, for ``run``; a single ``None`` where it need not be named, or cannot be read."""
    file = Path(path)
    try:
        name = detect_format(file, mapping) if format == AUTO else format
        if name in SINGLE:
            return [None]
        found = run_names(IMPORTERS[name](file, mapping or {}, lambda line, message: None), file)
    except (UserError, OSError):
        return [None]
    return [None] if len(found) < 2 else [*found]


def _runs(
    file: Path, format: str, mapping: Mapping[str, str], on_damage: OnDamage
) -> Iterator[tuple[Run, str, list[str]]]:
    """Runs that hold a record, each with its format and notes."""
    if data_set_of(file) is not None:
        from rmetric.dataset.read import read_runs as read_data_set

        yield from ((run, "data set", []) for run in read_data_set(file))
        return
    first: list[str] = []

    def report(line: int, message: str) -> None:
        first.extend([message] * (not first))
        on_damage(line, message)

    found = False
    try:
        name = detect_format(file, mapping) if format == AUTO else format
        for title, events in runs_in(IMPORTERS[name](file, mapping, report), file.stem):
            notes: list[str] = []
            run = assemble(title, chunks(without_notes(events, notes), report, 2**62))
            if len(run.observations):
                found = True
                yield run, name, notes
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}); check the path and its permissions") from error
    if not found:
        raise UserError(f"{file} has no record that could be used{f' ({first[0]})' if first else ''}; check the file")
