"""The runs of a log of any known format, each with what is to be said about its log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rmetric.dataset.sources import data_set_of
from rmetric.errors import UserError
from rmetric.importers import AUTO, IMPORTERS, detect_format
from rmetric.log_reader import assemble, chunks
from rmetric.records import Run

MOST_DAMAGE = 5
"""Reports of damage that are told one by one."""


@dataclass(frozen=True)
class LoggedRun:
    """A run as its log has it."""

    run: Run
    format: str
    """Name of the log's format."""
    notes: list[str] = field(default_factory=list)
    """Damage, and what was taken for what."""


def runs_of(path: str | Path, format: str = AUTO, mapping: Mapping[str, str] | None = None) -> Iterator[LoggedRun]:
    """The runs in a file, one or more.

    Raises
    ------
    UserError
        If it cannot be read, is of no known format, or holds no record.
    """
    file = Path(path)
    if data_set_of(file) is not None:
        from rmetric.dataset.read import read_runs

        yield from (LoggedRun(run, "data set") for run in read_runs(file))
        return
    damage: list[str] = []
    try:
        name = detect_format(file, mapping) if format == AUTO else format
        events = IMPORTERS[name](file, mapping or {}, lambda line, text: damage.append(f"line {line}: {text}"))
        run = assemble(file.stem, chunks(events, lambda line, text: damage.append(f"line {line}: {text}"), 2**62))
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}); check the path and its permissions") from error
    if not len(run.observations):
        raise UserError(f"{file} has no record that could be used{f' ({damage[0]})' if damage else ''}; check the file")
    more = [f"{len(damage) - MOST_DAMAGE} more reports of damage"] if len(damage) > MOST_DAMAGE else []
    yield LoggedRun(run, name, [*damage[:MOST_DAMAGE], *more])
