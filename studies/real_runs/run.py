"""Train the real runs: groups of a healthy twin and its forks, each group in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, starmap
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rmetric.errors import UserError
from rmetric.live.corpus import standard_library
from rmetric.live.models import tiny_model
from rmetric.live.models.memory import out_of_memory_in_one_line
from rmetric.live.run import LanguageModelRun, LiveRunConfig
from rmetric.registry import load_plugins
from rmetric.twins.group import Branch, record_group
from rmetric.twins.recording import fault_entry, log_config
from rmetric.twins.watching import MakeMonitor, close_hardware_watch, monitor_of
from studies.log_files import Finished, finished_recording
from studies.processes import each_from_fresh_processes, training_device
from studies.real_runs.disturbances import DISTURBANCES, described
from studies.real_runs.plan import TRAINING_VERSION, RealSpec, RealStudyPlan, groups_of
from studies.runner import Backend

OPTIMIZERS: dict[str, tuple[Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer], float]] = {
    "adamw": (torch.optim.AdamW, 1e-3),
    "sgd": (partial(torch.optim.SGD, lr=0.3, momentum=0.9), 0.3),
    "adafactor": (torch.optim.Adafactor, 1e-2),
}
"""Name → optimizer and peak learning rate, with which a tiny Llama learns about as fast as under AdamW."""


def fresh_run(plan: RealStudyPlan, spec: RealSpec) -> LanguageModelRun:
    """The run before its first step; it depends on model, optimizer and seed alone."""
    if spec.optimizer not in OPTIMIZERS:
        raise UserError(f"unknown optimizer {spec.optimizer!r}; choose one of {', '.join(OPTIMIZERS)}")
    device = training_device(plan.device)
    model = tiny_model(spec.model, seed=spec.seed, context=max(plan.length, 64)).to(device)  # type: ignore[arg-type]
    make, learning_rate = OPTIMIZERS[spec.optimizer]
    config = LiveRunConfig(
        seed=spec.seed, rows=plan.rows, length=plan.length, workers=plan.workers, learning_rate=learning_rate
    )
    return LanguageModelRun(model, make(model.parameters()), standard_library(), config)


def train_group(
    plan: RealStudyPlan,
    specs: Sequence[RealSpec],
    folder: Path,
    plugins: Sequence[Path] = (),
    make_monitor: MakeMonitor = monitor_of,
) -> Iterator[Finished]:
    """Train runs that share their healthy steps, and write their logs; yields each when its log is whole."""
    load_plugins(plugins)
    branches = [_branch(plan, spec) for spec in specs]
    make_run = partial(fresh_run, plan, specs[0])
    try:
        with out_of_memory_in_one_line("training"):
            yield from map(
                finished_recording, record_group(make_run, plan, branches, folder, make_monitor=make_monitor)
            )
    finally:
        close_hardware_watch()


def _branch(plan: RealStudyPlan, spec: RealSpec) -> Branch:
    return Branch(
        name=spec.experiment_id,
        config=lambda run: _config(plan, run, spec),
        onset=spec.onset,
        fault=spec.make_fault(),
        details=f"{spec.fault} ({spec.severity}) begins",
        change=DISTURBANCES[spec.disturbance].disturb if spec.disturbance else None,
    )


def _config(plan: RealStudyPlan, run: LanguageModelRun, spec: RealSpec) -> dict[str, Any]:
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
        "fault_injection": fault_entry(spec.make_fault(), spec.severity, spec.onset),
        "disturbance": described(DISTURBANCES[spec.disturbance], spec.onset) if spec.disturbance else None,
        "twin": spec.twin,
    }
    return log_config(run, own)


Task = tuple[RealStudyPlan, Sequence[RealSpec], Path, tuple[Path, ...], MakeMonitor]
"""Arguments of :func:`train_group`; they go to another process."""


def train_all(
    plan: RealStudyPlan, todo: Sequence[RealSpec], folder: Path, jobs: int, plugins: Sequence[Path]
) -> Iterator[list[Finished]]:
    """Train the runs that are still to do; yields each when its log is whole."""
    return train_tasks([(plan, group, folder, tuple(plugins), monitor_of) for group in groups_of(todo)], jobs)


def train_tasks(tasks: Sequence[Task], jobs: int) -> Iterator[list[Finished]]:
    """Train each group, here or in processes of their own; yields each run when its log is whole."""
    here = jobs == 1 or len(tasks) == 1
    trained = starmap(train_group, tasks) if here else [each_from_fresh_processes(train_group, tasks, jobs)]
    for finished in chain.from_iterable(trained):
        yield [finished]


TORCH = Backend(
    name="torch",
    verb="training",
    execute=train_all,
    version=TRAINING_VERSION,
    fitted_files=(),
    libraries=("numpy", "torch", "transformers", "orjson"),
)
"""Real training, for :func:`studies.runner.run_study`."""
