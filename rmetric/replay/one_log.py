"""The replay of one log, from its file to what was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

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
    file = Path(path)
    shown = plain_text(file)
    report = on_damage or strict(shown)
    replayer = Replayer(settings, chunk_records=chunk_records, trace=trace)
    with readable(shown):
        name = format_of(file, log_format, mapping)
        events = one_run(IMPORTERS[name](file, mapping or {}, report), file, run)
    notes: list[str] = []
    for columns in replayer.run(without_notes(guarded(events, shown), notes), report):
        if sink is not None:
            sink(columns)
    replay = replayer.finish(run or file.stem, shown, name, notes)
    if not replay.records:
        report(
            1,
            "an empty file"
            if file.is_file() and not file.stat().st_size
            else "no record in the whole file could be used",
        )
    return replay
