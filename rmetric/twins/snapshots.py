"""Train a live run, note what the ground truth needs, take a snapshot, and go on from it."""

from __future__ import annotations

import gc
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from rmetric.faults import Fault, injected
from rmetric.live.run import LiveRun
from rmetric.monitor import TrainingMonitor


class Schedule(Protocol):
    """Steps at which a run is evaluated and judged, and its end; every study's plan is one."""

    @property
    def steps(self) -> int:
        """The horizon."""

    @property
    def eval_every(self) -> int:
        """Steps between validation losses, which detectors see."""

    @property
    def judge_every(self) -> int:
        """Steps between the held-out losses that decide whether a run failed; no detector sees them."""


@dataclass
class TruthRecord:
    """Observations of a run from which it is judged against its twin. No detector sees them."""

    held_out: dict[int, float] = field(default_factory=dict)
    """Step → held-out loss, nats."""
    last_step: int = 0
    non_finite_step: int | None = None
    """First step whose loss was not finite."""
    worker_lost_step: int | None = None
    """Step at which a worker was lost for good."""

    def copy(self) -> TruthRecord:
        """A copy for a fork, which goes on with it."""
        return replace(self, held_out=dict(self.held_out))

    def losses_at(self, steps: Iterable[int]) -> list[float]:
        """Held-out loss at each step; NaN where the run had ended before."""
        return [self.held_out.get(step, math.nan) for step in steps]


@dataclass(frozen=True)
class Snapshot:
    """A healthy run between two steps, with its monitor, its log and its truth."""

    run: dict[str, Any]
    """State of the run: :meth:`LiveRun.state_dict`."""
    monitor: dict[str, Any]
    """State of its monitor."""
    log: bytes
    """Lines of its log so far but for the first."""
    truth: TruthRecord
    seconds_into_step: float
    """Age of the step that comes next. A fork whose first step had no time could be told by that."""

    @classmethod
    def take(cls, run: LiveRun, monitor: TrainingMonitor, log: Path, truth: TruthRecord) -> Snapshot:
        """Take a snapshot; ``run`` and ``monitor`` go on as if nothing had been."""
        seconds = monitor.seconds_into_step
        with monitor.paused():
            state = monitor.state_dict()  # also writes the record of the last step
            lines = log.read_bytes().splitlines(keepends=True)
            snapshot = cls(run.state_dict(), state, b"".join(lines[1:]), truth.copy(), seconds)
            # So many new objects can make Python look through all objects in a later step, for up to 0.2 s.
            gc.collect()
            return snapshot

    def packed(self) -> bytes:
        """The snapshot as bytes for another process; tensors in shared memory would be those of all of them."""
        buffer = io.BytesIO()
        plain = {"log": self.log.decode(), "held_out": self.truth.held_out, "seconds": self.seconds_into_step}
        torch.save({"run": self.run, "monitor": self.monitor, **plain}, buffer)
        return buffer.getvalue()

    @classmethod
    def unpacked(cls, packed: bytes) -> Snapshot:
        """The snapshot that :meth:`packed` was called on."""
        parts = torch.load(io.BytesIO(packed), weights_only=True)
        truth = TruthRecord(parts["held_out"])
        return cls(parts["run"], parts["monitor"], parts["log"].encode(), truth, parts["seconds"])

    def resume(self, monitor: TrainingMonitor) -> None:
        """Let a fresh monitor go on from here; right before the first step of the fork."""
        monitor.load_state_dict(self.monitor)
        monitor.continue_step(self.seconds_into_step)


def train(
    schedule: Schedule, run: LiveRun, monitor: TrainingMonitor | None, truth: TruthRecord, *, until: int
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
                truth.held_out[judged] = run.held_out_loss("judge")
        yield run.step
        truth.last_step = run.step
        truth.non_finite_step, truth.worker_lost_step = run.non_finite_step, run.worker_lost_step
        if run.non_finite_step is not None or run.worker_lost_step is not None:
            return


def train_to_end(schedule: Schedule, run: LiveRun, monitor: TrainingMonitor | None, truth: TruthRecord) -> None:
    """Train to the horizon, or until the loss is not finite or a worker is lost."""
    for _ in train(schedule, run, monitor, truth, until=schedule.steps):
        pass


def train_with_fault(
    schedule: Schedule, run: LiveRun, monitor: TrainingMonitor, truth: TruthRecord, fault: Fault, details: str
) -> None:
    """Train to the horizon with a fault that begins in the next step; each part of it ends when its time is over.

    ``details`` stand in the event FAULT_INJECTED.
    """
    onset = run.step + 1
    run.observer.note("FAULT_INJECTED", step=onset, fault=fault.label, details=details)
    with ExitStack() as stack:
        ends: dict[int, list[tuple[Fault, ExitStack]]] = defaultdict(list)
        for part in fault.parts:
            context = stack.enter_context(ExitStack())
            context.enter_context(injected(part, run))
            if part.duration_steps:
                ends[onset + part.duration_steps - 1].append((part, context))
        for step in train(schedule, run, monitor, truth, until=schedule.steps):
            for part, context in ends.pop(step, []):
                context.close()
                monitor.note("FAULT_CLEARED", step=step + 1, fault=part.name)
