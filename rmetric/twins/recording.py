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

import math
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmetric.detectors import make_detector
from rmetric.errors import UserError
from rmetric.evaluation.ground_truth import Outcome, judge
from rmetric.faults import NO_FAULT, Fault
from rmetric.files import write_atomically
from rmetric.live.run import LiveRun
from rmetric.log_writer import encode_event, terminal_event
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.recorder import LogConfig, start_config, vocabulary_of
from rmetric.records import START, Event
from rmetric.registry import plugin_errors
from rmetric.twins.snapshots import Schedule, Snapshot, TruthRecord, train, train_to_end, train_with_fault
from rmetric.twins.watching import LOGGED_DETECTORS, MakeMonitor, monitor_of, watching

# ---------------------------------------------------------------------------------------------------------------------
# What stands in the log
# ---------------------------------------------------------------------------------------------------------------------


def log_config(run: LiveRun, own: dict[str, Any], detectors: Sequence[str] = LOGGED_DETECTORS) -> LogConfig:
    """``config`` of EXPERIMENT_START: ``own`` entries of the study, and what every log of a live run has."""
    thresholds = {name: make_detector(name).threshold for name in detectors}
    return LogConfig(start_config(run.model, thresholds, vocabulary_of(run.model), run.config.workers) | own)


def fault_entry(fault: Fault | None, severity: str | None, onset: int | None) -> dict[str, Any]:
    """``fault_injection`` of ``config``; of a run without a fault, severity and onset are left out."""
    return {
        "type": fault.label if fault else NO_FAULT,
        "severity": severity if fault else None,
        "trigger_step": onset if fault else None,
        "params": fault.parameters if fault else {},
    }


def append_events(log: Path, *events: Event) -> None:
    """Append events to a log that no monitor writes any more; :class:`UserError` if somebody has deleted it."""
    _check_kept(log)
    with open(log, "ab") as file:
        file.write(b"".join(map(encode_event, events)))


def _check_kept(log: Path, beginning: bytes = b"") -> None:
    """Raise :class:`UserError` if a log is not there, or is another one that does not begin in this way."""
    with suppress(FileNotFoundError), open(log, "rb") as file:
        if file.read(len(beginning)) == beginning:
            return
    raise UserError(f"{log} was deleted by somebody else while it was written; record the run again")


# ---------------------------------------------------------------------------------------------------------------------
# The judgement
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judgement:
    """A run judged against its twin, and the losses that it rests on."""

    steps: list[int]
    """Steps at which the held-out loss of the twin was taken."""
    held_out: list[float]
    """Losses of the run at these steps, nats; NaN where it had ended before."""
    twin: list[float]
    """Losses of the twin."""
    outcome: Outcome

    def losses_event(self, last_step: int) -> Event:
        """The event HELD_OUT, which follows the records of a run that ended with this step."""
        losses = {"held_out": _for_json(self.held_out), "twin": _for_json(self.twin)}
        return {"event": "HELD_OUT", "step": last_step, "steps": self.steps, **losses}

    def last_event(self, horizon: int) -> Event:
        """The last line of the log."""
        return terminal_event(self.outcome.kind, self.outcome.failure_step, self.outcome.reason, horizon)


def judge_against(twin: TruthRecord, own: TruthRecord, *, faulty: bool) -> Judgement:
    """Judge a run against its twin at the steps at which the twin was judged; where the run had ended is an excess."""
    steps = sorted(twin.held_out)
    held_out, reference = own.losses_at(steps), twin.losses_at(steps)
    outcome = judge(
        held_out,
        reference,
        steps,
        non_finite_step=own.non_finite_step,
        worker_lost_step=own.worker_lost_step,
        faulty=faulty,
    )
    return Judgement(steps, held_out, reference, outcome)


def _for_json(losses: Sequence[float]) -> list[float | None]:
    """Six decimals; null where the loss is not finite or the run had ended."""
    return [round(loss, 6) if math.isfinite(loss) else None for loss in losses]


# ---------------------------------------------------------------------------------------------------------------------
# The twin and its forks
# ---------------------------------------------------------------------------------------------------------------------

Change = Callable[[Any], AbstractContextManager[None]]
"""A benign change of a run, entered right before its first step, left at the end of the run."""


def record_healthy(
    schedule: Schedule,
    run: LiveRun,
    monitor: TrainingMonitor,
    log: Path,
    *,
    onsets: Collection[int],
    until: int,
    on_step: Callable[[int], None] = lambda step: None,
) -> tuple[TruthRecord, dict[int, Snapshot]]:
    """Train the healthy run up to a step; returns its truth, and by onset the snapshot right before it.

    Parameters
    ----------
    schedule, run, monitor
        What to train and when to evaluate; enter :func:`rmetric.twins.watching.watching` before.
    log
        The log of the monitor.
    onsets
        First steps of the forks, none after ``until`` + 1.
    until
        Last step.
    on_step
        Called with the number of each step when it is done, before the snapshot that may follow.
    """
    truth, snapshots = TruthRecord(), {}
    for stop in sorted({*(onset - 1 for onset in onsets), until}):
        for step in train(schedule, run, monitor, truth, until=stop):
            on_step(step)
        if stop + 1 in onsets:
            snapshots[stop + 1] = Snapshot.take(run, monitor, log, truth)
    return truth, snapshots


@contextmanager
def resumed(
    run: LiveRun, snapshot: Snapshot, log: Path, config: dict[str, Any], make_monitor: MakeMonitor
) -> Iterator[TrainingMonitor]:
    """Watch a fork from the snapshot on; its log begins with the healthy records. ``run`` must be in the snapshot."""
    start = encode_event({"event": START, "config": config})
    write_atomically(log, start + snapshot.log)
    with watching(run, make_monitor(run, log, config)) as monitor:
        snapshot.resume(monitor)
        yield monitor
    first_healthy, _, _ = snapshot.log.partition(b"\n")
    _check_kept(log, start + first_healthy)


def record_fork(
    schedule: Schedule,
    run: LiveRun,
    snapshot: Snapshot,
    log: Path,
    config: dict[str, Any],
    *,
    fault: Fault | None = None,
    details: str = "",
    change: Change | None = None,
    make_monitor: MakeMonitor = monitor_of,
) -> TruthRecord:
    """Train a fork to the horizon, or until its loss is not finite or a worker is lost; returns its truth.

    Parameters
    ----------
    schedule, run
        When to evaluate, and a run of the same kind in any state: it is set to the snapshot.
    snapshot
        Of the healthy run, right before the first step of the fork.
    log, config
        Where the log is written, and what its first line says; it is left without an end.
    fault, details
        The fault that begins in the first step, and what the event FAULT_INJECTED says of it.
    change
        A benign change in place of a fault; with neither the fork is a control.
    """
    run.load_state_dict(snapshot.run)
    truth = snapshot.truth.copy()
    with resumed(run, snapshot, log, config, make_monitor) as monitor:
        if fault is not None:
            train_with_fault(schedule, run, monitor, truth, fault, details)
        else:
            with nullcontext() if change is None else change(run):
                train_to_end(schedule, run, monitor, truth)
    return truth


# ---------------------------------------------------------------------------------------------------------------------
# A whole group
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A run to record: the healthy twin, or a fork of it."""

    name: str
    """Name of the run, and of its log without the ending."""
    config: Callable[[Any], dict[str, Any]]
    """Makes ``config`` of its log, from a run of this kind in any state; see :func:`log_config`."""
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
    twin = next((branch for branch in branches if branch.onset is None), None)
    name = twin.name if twin else f"run_twin_of_{branches[0].name}"
    with work_file(folder, name) as work:
        config, onsets = twin.config(run) if twin else {}, {branch.onset for branch in forks if branch.onset}
        # Nobody reads the records of a twin without a log after the last snapshot.
        watched = schedule.steps if twin else max(onsets) - 1
        with watching(run, make_monitor(run, work, config)) as monitor:
            truth, snapshots = record_healthy(schedule, run, monitor, work, onsets=onsets, until=watched)
            if twin is None:
                monitor.detach()
                train_to_end(schedule, run, monitor, truth)
        if twin is not None:
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
