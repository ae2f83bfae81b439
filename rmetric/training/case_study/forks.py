"""The healthy prefix, and what is forked from it: the twin, and a run for each fault."""

from __future__ import annotations

import io
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

from rmetric.detectors import make_detector
from rmetric.faults import NO_FAULT, Fault, parse_fault
from rmetric.records import encode_event, write_atomically
from rmetric.training.case_study.plan import CaseStudyPlan
from rmetric.training.case_study.setup import live_run
from rmetric.training.hardware import HardwareWatch
from rmetric.training.live_run import LiveRun
from rmetric.training.monitor import TrainingMonitor
from rmetric.training.monitor.recorder import start_config, vocabulary_of

TWIN = "twin"
LOGGED_DETECTORS = ("r_metric", "loss_spike", "grad_norm", "numerics", "robust_z")
"""Detectors whose alerts stand in the logs; the tables score all of them, these and the others, from the records."""
OnProgress = Callable[[str, int], None]
"""Called with the name of a run and the number of steps that it has just done."""


@dataclass
class Trace:
    """What the truth about a run is made of."""

    held_out: dict[int, float] = field(default_factory=dict)
    last_step: int = 0
    non_finite_step: int | None = None
    worker_lost_step: int | None = None


@dataclass(frozen=True)
class Fork:
    """The state at the end of the healthy prefix."""

    run: dict[str, Any]
    monitor: dict[str, Any]
    log: bytes
    """Lines of the prefix's log but for the first."""
    trace: Trace

    def packed(self) -> bytes:
        """For another process; tensors in shared memory would be those of all of them."""
        buffer = io.BytesIO()
        held_out = self.trace.held_out
        torch.save({"run": self.run, "monitor": self.monitor, "log": self.log.decode(), "held_out": held_out}, buffer)
        return buffer.getvalue()

    @classmethod
    def unpacked(cls, packed: bytes) -> Fork:
        """What :meth:`packed` has packed."""
        parts = torch.load(io.BytesIO(packed), weights_only=True)
        return cls(parts["run"], parts["monitor"], parts["log"].encode(), Trace(parts["held_out"]))


def train_prefix(plan: CaseStudyPlan, run: LiveRun, progress: OnProgress) -> Fork:
    """Train up to the step before the onset."""
    trace = Trace()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "prefix.jsonl"
        monitor = _monitor(plan, run, log, {})
        run.observer = monitor
        for _ in _steps(plan, run, monitor, trace, until=plan.first_disturbed - 1):
            progress("healthy prefix", 1)
        state = monitor.state_dict()
        monitor.detach()
        lines = log.read_bytes().splitlines(keepends=True)
    return Fork(run.state_dict(), state, b"".join(lines[1:]), trace)


def train_packed_fork(plan: CaseStudyPlan, name: str, spelling: str, packed: bytes, out: Path) -> Trace:
    """As :func:`train_fork`, in another process."""
    return train_fork(plan, name, spelling, Fork.unpacked(packed), out)


def train_fork(plan: CaseStudyPlan, name: str, spelling: str, fork: Fork, out: Path) -> Trace:
    """Train a fork to the horizon, or until its loss is not finite or a worker is lost."""
    run = live_run(plan)[0].load_state_dict(fork.run)
    trace = Trace(dict(fork.trace.held_out))
    if name == TWIN:
        for _ in _steps(plan, run, None, trace, until=plan.steps):
            pass
        return trace
    fault, log = fault_of(spelling), out / f"{name}.jsonl"
    config = _config(plan, name, spelling, run)
    write_atomically(log, encode_event({"event": "EXPERIMENT_START", "config": config}) + fork.log)
    monitor = _monitor(plan, run, log, config)
    monitor.load_state_dict(fork.monitor)
    run.observer = monitor
    with _ending(monitor), ExitStack() as stack:
        ends = {} if fault is None else _begin(plan, run, spelling, fault, stack)
        for step in _steps(plan, run, monitor, trace, until=plan.steps):
            for part, context in ends.pop(step, []):
                context.close()
                monitor.note("FAULT_CLEARED", step=step + 1, fault=part.name)
    return trace


def _begin(
    plan: CaseStudyPlan, run: LiveRun, spelling: str, fault: Fault, stack: ExitStack
) -> dict[int, list[tuple[Fault, ExitStack]]]:
    """Bring a fault upon the run; returns last step → parts that end with it, of those that end before the run does."""
    onset = plan.first_disturbed
    run.observer.note("FAULT_INJECTED", step=onset, fault=fault.label, details=f"{spelling} begins")
    ends: dict[int, list[tuple[Fault, ExitStack]]] = defaultdict(list)
    for part in fault.parts:
        context = stack.enter_context(ExitStack())
        context.enter_context(part.inject(run))
        if part.duration_steps:
            ends[onset + part.duration_steps - 1].append((part, context))
    return ends


@contextmanager
def _ending(monitor: TrainingMonitor) -> Iterator[None]:
    try:
        yield
    finally:
        monitor.detach()


def _steps(
    plan: CaseStudyPlan, run: LiveRun, monitor: TrainingMonitor | None, trace: Trace, *, until: int
) -> Iterator[int]:
    """Train up to a step; yields the number of each step done."""
    while run.step < until:
        run.train_step()
        if monitor is not None and run.step % plan.eval_every == 0:
            monitor.validation(run.held_out_loss("validation"))
        if run.step % plan.judge_every == 0 or run.step == plan.steps:
            trace.held_out[run.step] = run.held_out_loss("judge")
        yield run.step
        trace.last_step = run.step
        trace.non_finite_step, trace.worker_lost_step = run.non_finite_step, run.worker_lost_step
        if run.non_finite_step is not None or run.worker_lost_step is not None:
            return


def _monitor(plan: CaseStudyPlan, run: LiveRun, log: Path, config: dict[str, Any]) -> TrainingMonitor:
    return TrainingMonitor(
        run.model,
        run.optimizer,
        log=log,
        detectors=LOGGED_DETECTORS,
        config=config,
        scaler=run.scaler,
        hardware=_hardware_watch(),
    )


@cache
def _hardware_watch() -> HardwareWatch:
    """One for all runs of a process; the user is told once, before training, what λ counts."""
    watch = HardwareWatch.automatic()
    watch.notes()
    return watch


def close_hardware_watch() -> None:
    """End the watch of this process, if there is one."""
    if _hardware_watch.cache_info().currsize:
        _hardware_watch().close()
        _hardware_watch.cache_clear()


def _config(plan: CaseStudyPlan, name: str, spelling: str, run: LiveRun) -> dict[str, Any]:
    fault, severities = fault_of(spelling), re.findall(r"@(\w+)", spelling)
    injection = {
        "type": fault.label if fault else NO_FAULT,
        "severity": ("+".join(severities) or "medium") if fault else None,
        "trigger_step": plan.first_disturbed if fault else None,
        "params": fault.parameters if fault else {},
    }
    own = {
        "experiment_id": name,
        "model_type": plan.model,
        "architecture": plan.model,
        "dataset": run.corpus.name,
        "seed": plan.seed,
        "num_workers": plan.workers,
        "total_training_steps": plan.steps,
        "eval_every_n_steps": plan.eval_every,
        "batch_size": plan.batch_rows,
        "sequence_length": plan.sequence_length,
        "learning_rate": plan.peak_learning_rate,
        "fault_injection": injection,
    }
    thresholds = {name: make_detector(name).threshold for name in LOGGED_DETECTORS}
    return start_config(run.model, thresholds, vocabulary_of(run.model), plan.workers, own)


def fault_of(spelling: str) -> Fault | None:
    return None if spelling in ("", NO_FAULT) else parse_fault(spelling)
