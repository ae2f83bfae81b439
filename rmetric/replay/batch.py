"""Many logs replayed, one after another or in several processes; the files and their order are the same."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

from rmetric.errors import UserError
from rmetric.importers import runs_named_in
from rmetric.progress import progress_bar
from rmetric.replay import PlotCurves, Replay, ReplayOptions
from rmetric.replay.report import output_names, replays_to_folder, unfinished_files
from rmetric.replay.settings import AS_IT_IS

POOL_PAYS_FROM_S = 4.0
"""Seconds of work, as estimated, from which several processes are faster than one: to start them takes about two."""
_LOG_S, _PLOT_S, _BYTES_PER_S = 0.01, 0.16, 90e6


def replay_logs(
    logs: Sequence[Path],
    out: Path,
    options: ReplayOptions = AS_IT_IS,
    *,
    jobs: int = 1,
    plot: bool = True,
    strict: bool = False,
) -> list[Replay]:
    """Replay logs, write the files of each, show how far it is; warnings go to standard error, log after log.

    Parameters
    ----------
    options
        How each log is read and judged; of a log of several runs all are.
    jobs
        Largest number of processes. What takes a few seconds is done in this one.
    plot
        Write ``<name>.png`` as well.
    strict
        As for :func:`~rmetric.replay.report.replays_to_folder`.

    Raises
    ------
    UserError
        With ``strict``, for the first log with damage; files of later logs may be there already.
    OSError
        If the output cannot be written.
    """
    runs = _runs_of(logs, partial(_named, options), jobs)
    names = iter(output_names([(path, run) for path, of_log in runs for run in of_log], out))
    work = [
        _Work(path=path, names={run: next(names) for run in of_log}, out=out, plot=plot, strict=strict, options=options)
        for path, of_log in runs
    ]
    jobs = _worth(jobs, [item.seconds for item in work])
    with progress_bar(total=sum(len(item.names) for item in work), unit="log") as bar:
        return _one_by_one(work, bar) if jobs == 1 else _in_processes(work, jobs, bar)


def _worth(jobs: int, seconds: Sequence[float]) -> int:
    """Number of processes that pay for work that takes so long."""
    return min(jobs, len(seconds)) if sum(seconds) > POOL_PAYS_FROM_S else 1


@contextmanager
def _map_in(jobs: int) -> Iterator[Callable[..., Iterator[Any]]]:
    if jobs == 1:
        yield map
        return
    from rmetric.engines.local import LocalEngine  # 20 ms to import, and a single log does not need it

    with LocalEngine(jobs) as engine:
        yield engine.map


def _runs_of(
    logs: Sequence[Path], named: Callable[[Path], list[str | None]], jobs: int
) -> list[tuple[Path, list[str | None]]]:
    """The runs of each log, in order; a log of another program is read as a whole for their names."""
    bar = progress_bar(total=len(logs), unit="log", desc="looking for runs", leave=False)
    found: list[tuple[Path, list[str | None]]] = []
    with bar, _map_in(_worth(jobs, [_reading_s(path) for path in logs])) as mapped:
        for path, runs in zip(logs, mapped(named, logs), strict=True):
            found.append((path, runs))
            bar.update()
    return found


def _named(options: ReplayOptions, path: Path) -> list[str | None]:
    """Work of another process: the names of the runs of a log."""
    return runs_named_in(path, options.log_format, options.mapping)


def _reading_s(path: Path) -> float:
    """About how long it takes to read a log, s."""
    size = path.stat().st_size if path.exists() else 0
    return _LOG_S + size / _BYTES_PER_S


@dataclass(frozen=True, kw_only=True)
class _Work:
    """One log to replay, with the names of its runs' files."""

    path: Path
    names: Mapping[str | None, str]
    out: Path
    plot: bool
    strict: bool
    options: ReplayOptions

    @property
    def seconds(self) -> float:
        """About how long it takes."""
        return _reading_s(self.path) + (_PLOT_S * len(self.names) if self.plot else 0.0)

    def do(self, progress: Callable[[int], None] | None = None, warnings: TextIO | None = None) -> Iterator[Replay]:
        """Replay and write; parameters as for :func:`~rmetric.replay.report.replays_to_folder`."""
        return replays_to_folder(
            self.path, self.names, self.out, self.options, strict=self.strict,
            progress=progress, warnings=warnings, draw=self._draw if self.plot else None,
        )  # fmt: skip

    def _draw(self, replay: Replay, curves: PlotCurves) -> None:
        try:
            from rmetric.replay.plot import draw_replay  # half a second to import
        except ValueError as error:  # of MPLBACKEND
            raise UserError(f"matplotlib cannot be imported, and --no-plot does without: {error}") from None
        draw_replay(replay, curves, self.out / f"{replay.name}.png")


def _one_by_one(work: Sequence[_Work], bar: tqdm) -> list[Replay]:
    replays = []
    for item in work:
        names = iter(item.names.values())
        bar.set_description(next(names)[-40:])
        for replay in item.do(progress=lambda records: bar.set_postfix_str(f"{records:,} records")):
            replays.append(replay)
            bar.update()
            bar.set_description(next(names, replay.name)[-40:])
    return replays


def _in_processes(work: Sequence[_Work], jobs: int, bar: tqdm) -> list[Replay]:
    replays = []
    try:
        with _map_in(jobs) as mapped:
            for item, (found, said) in zip(work, mapped(_done, work), strict=True):
                bar.set_description(next(iter(item.names.values()))[-40:])
                for line in said:
                    tqdm.write(line, file=sys.stderr)
                if isinstance(found, Exception):
                    raise found
                replays += found
                bar.update(len(found))
    except BaseException:  # a process that was stopped leaves what it was writing
        for leftover in unfinished_files(work[0].out, [name for item in work for name in item.names.values()]):
            leftover.unlink(missing_ok=True)
        raise
    return replays


def _done(item: _Work) -> tuple[list[Replay] | Exception, list[str]]:
    """Work of another process: the replays of a log, or why there are none, and the lines of their warnings.

    An error is brought back as a value, so that the first log's is raised first.
    """
    screen = io.StringIO()
    found: list[Replay] | Exception
    try:
        found = [*item.do(warnings=screen)]
    except (UserError, OSError) as error:
        found = error
    return found, screen.getvalue().splitlines()
