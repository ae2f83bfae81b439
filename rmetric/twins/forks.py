"""Runs that share a healthy beginning: train, note the truth, take a snapshot, go on from it."""

from __future__ import annotations

import gc
import io
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch

from rmetric.faults import Fault
from rmetric.live.run import LiveRun
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.hardware import HardwareWatch

LOGGED_DETECTORS = ("r_metric", "loss_spike", "grad_norm", "numerics", "robust_z")
"""Detectors whose alerts stand in the logs; the tables score all of them, these and the others, from the records."""


class Schedule(Protocol):
    """When a run is evaluated and judged, and where it ends."""

    @property
    def steps(self) -> int: ...
    @property
    def eval_every(self) -> int: ...
    @property
    def judge_every(self) -> int: ...


@dataclass
class Trace:
    """What the truth about a run is made of."""

    held_out: dict[int, float] = field(default_factory=dict)
    last_step: int = 0
    non_finite_step: int | None = None
    worker_lost_step: int | None = None

    def copy(self) -> Trace:
        """Of a healthy run, to be gone on with."""
        return replace(self, held_out=dict(self.held_out))


@dataclass(frozen=True)
class Fork:
    """A healthy run between two steps."""

    run: dict[str, Any]
    monitor: dict[str, Any]
    log: bytes
    """Lines of its log so far but for the first."""
    trace: Trace
    seconds_into_step: float
    """How old the step was that comes next. A fork whose first step had no time could be told by that."""

    @classmethod
    def of(cls, run: LiveRun, monitor: TrainingMonitor, log: Path, trace: Trace) -> Fork:
        """A snapshot: ``run`` and ``monitor`` go on as if nothing had been."""
        seconds = monitor.seconds_into_step
        with monitor.paused():
            state = monitor.state_dict()  # also writes the record of the last step
            lines = log.read_bytes().splitlines(keepends=True)
            fork = cls(run.state_dict(), state, b"".join(lines[1:]), trace.copy(), seconds)
            # So many new objects can make Python look through all objects in a later step, for up to 0.2 s.
            gc.collect()
            return fork

    def packed(self) -> bytes:
        """For another process; tensors in shared memory would be those of all of them."""
        buffer = io.BytesIO()
        plain = {"log": self.log.decode(), "held_out": self.trace.held_out, "seconds": self.seconds_into_step}
        torch.save({"run": self.run, "monitor": self.monitor, **plain}, buffer)
        return buffer.getvalue()

    @classmethod
    def unpacked(cls, packed: bytes) -> Fork:
        """What :meth:`packed` has packed."""
        parts = torch.load(io.BytesIO(packed), weights_only=True)
        return cls(parts["run"], parts["monitor"], parts["log"].encode(), Trace(parts["held_out"]), parts["seconds"])

    def go_on(self, monitor: TrainingMonitor) -> None:
        """Let a fresh monitor go on from here; right before the first step of the fork."""
        monitor.load_state_dict(self.monitor)
        monitor.continue_step(self.seconds_into_step)


def train(
    schedule: Schedule, run: LiveRun, monitor: TrainingMonitor | None, trace: Trace, *, until: int
) -> Iterator[int]:
    """Train up to a step, or until the loss is not finite or a worker is lost; yields the number of each step done."""
    while run.step < until:
        run.train_step()
        if monitor is not None and run.step % schedule.eval_every == 0:
            monitor.validation(run.held_out_loss("validation"))
        # On the clock of the records: what a step leaves behind is the loss of the next one, as the training loss and
        # the validation loss that stand in the next record are.
        judged = run.step + 1
        if judged % schedule.judge_every == 0 or judged == schedule.steps:
            with monitor.paused() if monitor is not None else nullcontext():  # what nobody sees takes no time
                trace.held_out[judged] = run.held_out_loss("judge")
        yield run.step
        trace.last_step = run.step
        trace.non_finite_step, trace.worker_lost_step = run.non_finite_step, run.worker_lost_step
        if run.non_finite_step is not None or run.worker_lost_step is not None:
            return


def train_with_fault(
    schedule: Schedule, run: LiveRun, monitor: TrainingMonitor, trace: Trace, fault: Fault, details: str
) -> None:
    """Train to the horizon with a fault that begins in the next step; each part of it ends when its time is over."""
    onset = run.step + 1
    run.observer.note("FAULT_INJECTED", step=onset, fault=fault.label, details=details)
    with ExitStack() as stack:
        ends: dict[int, list[tuple[Fault, ExitStack]]] = defaultdict(list)
        for part in fault.parts:
            context = stack.enter_context(ExitStack())
            context.enter_context(part.inject(run))
            if part.duration_steps:
                ends[onset + part.duration_steps - 1].append((part, context))
        for step in train(schedule, run, monitor, trace, until=schedule.steps):
            for part, context in ends.pop(step, []):
                context.close()
                monitor.note("FAULT_CLEARED", step=step + 1, fault=part.name)


def monitor_of(run: LiveRun, log: Path, config: dict[str, Any], **options: Any) -> TrainingMonitor:
    """The monitor of a twin or of a fork; ``options`` are further ones of :class:`TrainingMonitor`."""
    return TrainingMonitor(
        run.model,
        run.optimizer,
        log=log,
        detectors=LOGGED_DETECTORS,
        config=config,
        scaler=run.scaler,
        hardware=hardware_watch(),
        **options,
    )


@contextmanager
def watching(run: LiveRun, monitor: TrainingMonitor) -> Iterator[TrainingMonitor]:
    """The monitor sees every step; afterwards its hooks are gone and the log is left without an end."""
    run.observer = monitor
    try:
        yield monitor
    finally:
        monitor.detach()


@cache
def hardware_watch() -> HardwareWatch:
    """One for all runs of a process; the user is told once, before training, what λ counts."""
    watch = HardwareWatch.automatic()
    watch.notes()
    return watch


def close_hardware_watch() -> None:
    """End the watch of this process, if there is one."""
    if hardware_watch.cache_info().currsize:
        hardware_watch().close()
        hardware_watch.cache_clear()
