"""Train the real runs: groups of a healthy twin and its forks, each group in a process of its own."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rmetric.detectors import make_detector
from rmetric.errors import UserError
from rmetric.evaluation.ground_truth import judge
from rmetric.faults import NO_FAULT
from rmetric.files import write_atomically
from rmetric.live.corpus import standard_library
from rmetric.live.models import tiny_model
from rmetric.live.models.memory import out_of_memory_in_one_line
from rmetric.live.run import LiveRun, LiveRunConfig
from rmetric.log_writer import encode_event, terminal_event
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.recorder import start_config, vocabulary_of
from rmetric.registry import load_plugin
from rmetric.twins.forks import (
    LOGGED_DETECTORS,
    Fork,
    Trace,
    close_hardware_watch,
    monitor_of,
    train,
    train_with_fault,
    watching,
)
from studies.case_study.run import device_of
from studies.processes import in_fresh_processes
from studies.real_runs.disturbances import DISTURBANCES, described
from studies.real_runs.plan import TRAINING_VERSION, RealSpec, RealStudyPlan, groups_of
from studies.runner import Backend, Finished

OPTIMIZERS: dict[str, tuple[Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer], float]] = {
    "adamw": (torch.optim.AdamW, 1e-3),
    "sgd": (partial(torch.optim.SGD, lr=0.3, momentum=0.9), 0.3),
    "adafactor": (torch.optim.Adafactor, 1e-2),
}
"""Name → optimizer and peak learning rate, with which a tiny Llama learns about as fast as under AdamW."""


def fresh_run(plan: RealStudyPlan, spec: RealSpec) -> LiveRun:
    """The run before its first step; it depends on model, optimizer and seed alone."""
    if spec.optimizer not in OPTIMIZERS:
        raise UserError(f"unknown optimizer {spec.optimizer!r}; choose one of {', '.join(OPTIMIZERS)}")
    device = device_of(plan.device)
    if device.type == "cpu":
        torch.set_num_threads(1)  # several processes share the cores, and sums come out the same in each
    model = tiny_model(spec.model, seed=spec.seed, context=max(plan.length, 64)).to(device)  # type: ignore[arg-type]
    make, learning_rate = OPTIMIZERS[spec.optimizer]
    config = LiveRunConfig(
        seed=spec.seed, rows=plan.rows, length=plan.length, workers=plan.workers, learning_rate=learning_rate
    )
    return LiveRun(model, make(model.parameters()), standard_library(), config)


MakeMonitor = Callable[[LiveRun, Path, dict[str, Any]], TrainingMonitor]
"""The monitor of a run, its log, and that log's ``config``."""


def train_group(
    plan: RealStudyPlan, specs: Sequence[RealSpec], folder: Path, make_monitor: MakeMonitor = monitor_of
) -> Iterator[Finished]:
    """Train runs that share their healthy steps, and write their logs; yields each when its log is whole.

    The twin is trained once, through to the horizon, with a snapshot before every onset; each fork goes on from its
    snapshot and is judged against the twin. A twin that is no run of the study itself leaves no log.
    """
    run = fresh_run(plan, specs[0])
    forks = [spec for spec in specs if spec.onset is not None]
    twin = next((spec for spec in specs if spec.onset is None), None)
    name = twin.experiment_id if twin else f"run_twin_of_{specs[0].experiment_id}"
    work = _WorkFile(folder, name)
    with work:
        onsets = {spec.onset for spec in forks if spec.onset}
        trace, snapshots = _train_twin(plan, run, work.path, twin, onsets, make_monitor)
        if twin is not None:
            yield _finish(plan, twin, work.path, trace, trace, folder)
    for spec in forks:
        assert spec.onset is not None
        with _WorkFile(folder, spec.experiment_id) as work:
            own = _train_fork(plan, run, work.path, spec, snapshots[spec.onset], name if twin else None, make_monitor)
            yield _finish(plan, spec, work.path, own, trace, folder)


class _WorkFile:
    """The log while it is written; whoever resumes the study finds no half of a log under its name."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f".{name}.part"

    def __enter__(self) -> _WorkFile:
        self.path.unlink(missing_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def _train_twin(
    plan: RealStudyPlan, run: LiveRun, log: Path, spec: RealSpec | None, onsets: set[int], make_monitor: MakeMonitor
) -> tuple[Trace, dict[int, Fork]]:
    trace, snapshots = Trace(), {}
    config = _config(plan, run, spec, None) if spec else {}
    with watching(run, make_monitor(run, log, config)) as monitor:
        for onset in sorted(onsets):
            for _ in train(plan, run, monitor, trace, until=onset - 1):
                pass
            snapshots[onset] = Fork.of(run, monitor, log, trace)
        if spec is None:
            monitor.detach()  # nobody reads the rest
        for _ in train(plan, run, monitor, trace, until=plan.steps):
            pass
    return trace, snapshots


def _train_fork(
    plan: RealStudyPlan,
    run: LiveRun,
    log: Path,
    spec: RealSpec,
    fork: Fork,
    twin: str | None,
    make_monitor: MakeMonitor,
) -> Trace:
    run.load_state_dict(fork.run)
    trace, config = fork.trace.copy(), _config(plan, run, spec, twin)
    write_atomically(log, encode_event({"event": "EXPERIMENT_START", "config": config}) + fork.log)
    monitor = make_monitor(run, log, config)
    with watching(run, monitor):
        fork.go_on(monitor)
        fault = spec.make_fault()
        if fault is not None:
            train_with_fault(plan, run, monitor, trace, fault, f"{spec.fault} ({spec.severity}) begins")
        elif spec.disturbance is not None:
            with DISTURBANCES[spec.disturbance].disturb(run):
                for _ in train(plan, run, monitor, trace, until=plan.steps):
                    pass
    return trace


def _config(plan: RealStudyPlan, run: LiveRun, spec: RealSpec, twin: str | None) -> dict[str, Any]:
    fault = spec.make_fault()
    injection = {
        "type": fault.label if fault else NO_FAULT,
        "severity": spec.severity if fault else None,
        "trigger_step": spec.onset if fault else None,
        "params": fault.parameters if fault else {},
    }
    own = {
        "experiment_id": spec.experiment_id,
        "model_type": spec.model,
        "architecture": spec.model,
        "optimizer": spec.optimizer,
        "dataset": run.corpus.name,
        "seed": spec.seed,
        "repetition": spec.repetition,
        "num_workers": plan.workers,
        "total_training_steps": plan.steps,
        "eval_every_n_steps": plan.eval_every,
        "batch_size": plan.rows,
        "sequence_length": plan.length,
        "learning_rate": run.config.learning_rate,
        "fault_injection": injection,
        "disturbance": described(spec.disturbance, spec.onset) if spec.disturbance else None,
        "twin": twin,
    }
    thresholds = {name: make_detector(name).threshold for name in LOGGED_DETECTORS}
    return start_config(run.model, thresholds, vocabulary_of(run.model), plan.workers, own)


def _finish(plan: RealStudyPlan, spec: RealSpec, work: Path, own: Trace, twin: Trace, folder: Path) -> Finished:
    """Judge the run, end its log, and give it its name."""
    steps = sorted(twin.held_out)
    held_out = [own.held_out.get(step, math.nan) for step in steps]
    reference = [twin.held_out[step] for step in steps]
    outcome = judge(
        held_out,
        reference,
        steps,
        non_finite_step=own.non_finite_step,
        worker_lost_step=own.worker_lost_step,
        faulty=spec.fault != NO_FAULT,
    )
    truth = {"event": "HELD_OUT", "step": own.last_step, "steps": steps}
    truth |= {"held_out": _plain(held_out), "twin": _plain(reference)}
    end = terminal_event(outcome.kind, outcome.failure_step, outcome.reason, plan.steps)
    content = work.read_bytes() + encode_event(truth) + encode_event(end)
    write_atomically(folder / f"{spec.experiment_id}.jsonl", content)
    records = content.count(b'\n{"event":"METRICS"')
    digest = hashlib.sha256(content).hexdigest()
    return Finished(spec.experiment_id, digest, len(content), records, outcome.kind, outcome.failure_step)


def _plain(losses: Sequence[float]) -> list[float | None]:
    """For JSON: six decimals; what is not finite, or was not lived to see, is null."""
    return [round(loss, 6) if math.isfinite(loss) else None for loss in losses]


Task = tuple[RealStudyPlan, Sequence[RealSpec], Path, tuple[Path, ...], MakeMonitor]
"""Arguments of :func:`train_group_into`; they go to another process."""


def train_all(
    plan: RealStudyPlan, todo: Sequence[RealSpec], folder: Path, jobs: int, plugins: Sequence[Path]
) -> Iterator[list[Finished]]:
    """Train the runs that are still to do; yields those of a group when it is done."""
    return train_tasks([(plan, group, folder, tuple(plugins), monitor_of) for group in groups_of(todo)], jobs)


def train_tasks(tasks: Sequence[Task], jobs: int) -> Iterator[list[Finished]]:
    """Train each group, here or in processes of their own; yields its runs when it is done."""
    if jobs == 1 or len(tasks) == 1:
        for plan, group, folder, _, make_monitor in tasks:  # here, the plugins are loaded
            yield train_group_into(plan, group, folder, (), make_monitor)
        return
    for _, finished in in_fresh_processes(train_group_into, tasks, jobs):
        yield finished


def train_group_into(
    plan: RealStudyPlan,
    group: Sequence[RealSpec],
    folder: Path,
    plugins: Sequence[Path],
    make_monitor: MakeMonitor,
) -> list[Finished]:
    """Train a group in this process."""
    for plugin in plugins:
        load_plugin(plugin)
    try:
        with out_of_memory_in_one_line("training"):
            return list(train_group(plan, group, folder, make_monitor))
    finally:
        close_hardware_watch()


TORCH = Backend(
    name="torch",
    verb="training",
    execute=train_all,
    version=TRAINING_VERSION,
    fitted_files=(),
    libraries=("numpy", "torch", "transformers", "orjson"),
)
"""Real training, for :func:`studies.runner.run_study`."""
