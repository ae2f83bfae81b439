"""The replay of one log, from its file to what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rmetric.batches import NumberedEvent
from rmetric.importers import AUTO, IMPORTERS, one_run, without_notes
from rmetric.importers.format import format_of
from rmetric.importers.read import guarded, readable
from rmetric.log_lines import OnDamage, plain_text, strict
from rmetric.replay.replayer import REPLAY_CHUNK, Columns, Replayer
from rmetric.replay.result import Replay
from rmetric.replay.settings import ReplaySettings
from rmetric.replay.trace import PlotCurves


def replay_log(
    path: str | Path,
    *,
    settings: ReplaySettings | None = None,
    log_format: str = AUTO,
    mapping: Mapping[str, str] | None = None,
    run: str | None = None,
    on_damage: OnDamage | None = None,
    sink: Callable[[Columns], None] | None = None,
    trace: PlotCurves | None = None,
    chunk_records: int = REPLAY_CHUNK,
) -> Replay:
    """Replay one log in bounded memory.

    Parameters
    ----------
    path
        A log of any format in :data:`rmetric.importers.IMPORTERS`.
    log_format
        Name of its format; ``auto`` judges by its content.
    mapping
        Our name → the log's name of a column.
    run
        Name of the run, needed where a log holds several.
    on_damage
        Receives ``(line, message)``, maybe in another thread; without it, damage is an error, but a last line that was
        cut off is a warning.
    sink
        Receives the columns of each chunk, see :meth:`Replayer.run`.
    trace
        Receives the curves of a plot, such as ``curves = PlotCurves()``.

    Raises
    ------
    UserError
        If the file cannot be read, is of no known format, holds several runs and none is named, or none of that name;
        for a ``trace`` of another kind.
    """
    report = on_damage or strict(plain_text(path))
    name, events = events_of(path, log_format, mapping, report)
    return replay_run(
        one_run(events, Path(path), run), run or Path(path).stem, path, name,
        settings=settings, on_damage=report, sink=sink, trace=trace, chunk_records=chunk_records,
    )  # fmt: skip


def events_of(
    path: str | Path, log_format: str, mapping: Mapping[str, str] | None, on_damage: OnDamage
) -> tuple[str, Iterator[NumberedEvent]]:
    """Name of a log's format, and its events, run after run; parameters and errors as those of :func:`replay_log`."""
    file, shown = Path(path), plain_text(path)
    with readable(shown):
        name = format_of(file, log_format, mapping)
        return name, guarded(IMPORTERS[name](file, mapping or {}, on_damage), shown)


def replay_run(
    events: Iterator[NumberedEvent],
    title: str,
    path: str | Path,
    log_format: str,
    *,
    settings: ReplaySettings | None,
    on_damage: OnDamage,
    sink: Callable[[Columns], None] | None,
    trace: PlotCurves | None,
    chunk_records: int = REPLAY_CHUNK,
) -> Replay:
    """Replay the events of one run of a log, by the name ``title``; other parameters as those of :func:`replay_log`."""
    replayer = Replayer(settings, chunk_records=chunk_records, trace=trace)
    notes: list[str] = []
    for columns in replayer.run(without_notes(events, notes), on_damage):
        if sink is not None:
            sink(columns)
    replay = replayer.finish(title, plain_text(path), log_format, notes)
    if not replay.records:
        file = Path(path)
        is_empty = file.is_file() and not file.stat().st_size
        on_damage(1, "an empty file" if is_empty else "no record in the whole file could be used")
    return replay
