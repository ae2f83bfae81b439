"""Record a healthy twin and its forks: each fork gets a fault, a log of its own, and a judgement against the twin.

A kind of training needs a function that makes its fresh run, a schedule, and a list of branches::

    branches = [
        Branch("twin", config=config_of_twin),
        Branch("large_rate", config=config_of_fork, onset=300, fault=make_fault("LARGE_LR")),
    ]
    for recorded in record_group(fresh_run, schedule, branches, folder):
        print(recorded.log, recorded.judgement.outcome.kind)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmetric.faults import Fault
from rmetric.live.run import LiveRun
from rmetric.registry import plugin_errors
from rmetric.twins.recording import Change, Judgement, append_events, judge_against, record_fork, record_healthy
from rmetric.twins.snapshots import Schedule, TruthRecord, train_to_end
from rmetric.twins.watching import MakeMonitor, monitor_of, watching


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A run to record: the healthy twin, or a fork of it."""

    name: str
    """Name of the run, and of its log without the ending."""
    config: Callable[[Any], dict[str, Any]]
    """Makes ``config`` of its log, from a run of this kind in any state; see
    :func:`~rmetric.twins.recording.log_config`."""
    onset: int | None = None
    """First disturbed step, from 2; ``None``: the twin."""
    fault: Fault | None = None
    details: str = ""
    """Text for the event FAULT_INJECTED."""
    change: Change | None = None
    """A benign change in place of a fault."""


@dataclass(frozen=True)
class RecordedRun:
    """A recorded run whose log is whole."""

    name: str
    log: Path
    judgement: Judgement


def record_group(
    make_run: Callable[[], LiveRun],
    schedule: Schedule,
    branches: Sequence[Branch],
    folder: Path,
    *,
    make_monitor: MakeMonitor = monitor_of,
) -> Iterator[RecordedRun]:
    """Record runs that share their healthy steps; yields each when its log is whole.

    The twin is trained once, through to the horizon, with a snapshot before every onset; each fork goes on from its
    snapshot and is judged against the twin.

    Parameters
    ----------
    make_run
        Makes the run before its first step; it is called once, and equal calls must give equal runs.
    schedule
        When a run is evaluated and judged, and where it ends.
    branches
        The runs, of which at most one is the twin. Without it the twin is trained all the same and leaves no log.
    folder
        Existing folder for the logs, ``<name>.jsonl``. A log appears there only when it is whole.
    make_monitor
        Makes the monitor of each run: its detectors, sinks, hardware watch.
    """
    run, forks = make_run(), [branch for branch in branches if branch.onset is not None]
    twin, onsets = twin_of(branches), {branch.onset for branch in forks if branch.onset}
    logged = twin in branches
    with work_file(folder, twin.name) as work:
        # Nobody reads the records of a twin without a log after the last snapshot.
        watched = schedule.steps if logged else max(onsets) - 1
        with watching(run, make_monitor(run, work, twin.config(run))) as monitor:
            truth, snapshots = record_healthy(schedule, run, monitor, work, onsets=onsets, until=watched)
            if not logged:
                monitor.detach()
                train_to_end(schedule, run, monitor, truth)
        if logged:
            yield finished(schedule, twin, work, truth, truth)
    for branch in forks:
        assert branch.onset is not None
        with work_file(folder, branch.name) as work, plugin_errors(branch.name):
            own = record_fork(
                schedule,
                run,
                snapshots[branch.onset],
                work,
                branch.config(run),
                fault=branch.fault,
                details=branch.details,
                change=branch.change,
                make_monitor=make_monitor,
            )
            yield finished(schedule, branch, work, own, truth)


def twin_of(branches: Sequence[Branch]) -> Branch:
    """The healthy twin; where it is not among the branches, one that counts workers as they do and leaves no log."""
    unlogged = Branch(name=f"run_twin_of_{branches[0].name}", config=branches[0].config)
    return next((branch for branch in branches if branch.onset is None), unlogged)


@contextmanager
def work_file(folder: Path, name: str) -> Iterator[Path]:
    """Path of a log while this process writes it; whoever resumes the study finds no half of a log under its name."""
    path = folder / f".{name}.{os.getpid()}.part"
    path.unlink(missing_ok=True)
    try:
        yield path
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def finished(schedule: Schedule, branch: Branch, work: Path, own: TruthRecord, twin: TruthRecord) -> RecordedRun:
    """Judge the run, end its log, and give it its name."""
    judgement, log = judge_against(twin, own, faulty=branch.fault is not None), work.parent / f"{branch.name}.jsonl"
    append_events(work, judgement.losses_event(own.last_step), judgement.last_event(schedule.steps))
    work.replace(log)
    return RecordedRun(branch.name, log, judgement)
