"""The replay of one log, from its file to what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rmetric.batches import NumberedEvent
from rmetric.importers import AUTO, one_run, without_notes
from rmetric.importers.read import events_of
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
    file = Path(path)
    name, events = events_of(file, log_format, mapping, report)
    return replay_run(
        one_run(events, file, run), run, file, name,
        settings=settings, on_damage=report, sink=sink, trace=trace, chunk_records=chunk_records,
    )  # fmt: skip


def replay_run(
    events: Iterator[NumberedEvent],
    run: str | None,
    path: Path,
    log_format: str,
    *,
    settings: ReplaySettings | None,
    on_damage: OnDamage,
    sink: Callable[[Columns], None] | None,
    trace: PlotCurves | None,
    chunk_records: int = REPLAY_CHUNK,
) -> Replay:
    """Replay the events of one run of a log; other parameters as those of :func:`replay_log`."""
    replayer = Replayer(settings, chunk_records=chunk_records, trace=trace)
    notes: list[str] = []
    for columns in replayer.run(without_notes(events, notes), on_damage):
        if sink is not None:
            sink(columns)
    replay = replayer.finish(run or path.stem, plain_text(path), log_format, notes)
    if not replay.records:
        is_empty = path.is_file() and not path.stat().st_size
        on_damage(1, "an empty file" if is_empty else "no record in the whole file could be used")
    return replay
