"""Record a healthy run or one fork of it, and judge the fork against its twin."""

from __future__ import annotations

import math
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
from rmetric.log_writer import encode_event, injection_entry, terminal_event
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.recorder import LogConfig, start_config
from rmetric.network.structure import type_of, vocabulary_of
from rmetric.records import START, Event
from rmetric.twins.snapshots import Schedule, Snapshot, TruthRecord, train, train_to_end, train_with_fault
from rmetric.twins.watching import LOGGED_DETECTORS, MakeMonitor, monitor_of, watching

# --- What stands in the log ------------------------------------------------------------------------------------------


def log_config(run: LiveRun, own: dict[str, Any], detectors: Sequence[str] = LOGGED_DETECTORS) -> LogConfig:
    """``config`` of EXPERIMENT_START: ``own`` entries of the study, and what every log of a live run has."""
    thresholds = {name: make_detector(name).threshold for name in detectors}
    vocabulary, kind = vocabulary_of(run.model), type_of(run.model)
    return LogConfig(start_config("torch", kind, thresholds, vocabulary, run.config.workers) | own)


def fault_entry(fault: Fault | None, severity: str | None, onset: int | None) -> dict[str, Any]:
    """``fault_injection`` of ``config``; of a run without a fault, severity and onset are left out."""
    if fault is None:
        return injection_entry(NO_FAULT, None, None, {})
    return injection_entry(fault.label, severity, onset, fault.parameters)


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


# --- The judgement ---------------------------------------------------------------------------------------------------


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


# --- The twin and its forks ------------------------------------------------------------------------------------------

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
