"""Groups of runs in processes of their own, each with the mechanism monitors on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rmetric.registry import load_plugin
from rmetric.study import Backend, Finished
from rmetric.training.forking import close_hardware_watch, monitor_of
from rmetric.training.live_run import LiveRun
from rmetric.training.mechanism import MechanismWatch
from rmetric.training.mechanism_study.plan import MechanismPlan, MechanismSpec
from rmetric.training.models.memory import out_of_memory_in_one_line
from rmetric.training.monitor import TrainingMonitor
from rmetric.training.processes import in_fresh_processes
from rmetric.training.real_study.group import train_group
from rmetric.training.real_study.plan import groups_of


def train_all(
    plan: MechanismPlan, todo: Sequence[MechanismSpec], folder: Path, jobs: int, plugins: Sequence[Path]
) -> Iterator[list[Finished]]:
    """Train the runs that are still to do; yields those of a group when it is done. First seeds first."""
    groups = sorted(groups_of(todo), key=lambda group: group[0].repetition)
    tasks = [(plan, group, folder, tuple(plugins)) for group in groups]
    if jobs == 1 or len(tasks) == 1:
        for task in tasks:
            yield _train_group(*task)
        return
    for _, finished in in_fresh_processes(_train_group, tasks, jobs):
        yield finished


def _train_group(
    plan: MechanismPlan, group: Sequence[MechanismSpec], folder: Path, plugins: Sequence[Path]
) -> list[Finished]:
    for plugin in plugins:
        load_plugin(plugin)
    try:
        with out_of_memory_in_one_line("training"):
            monitor = partial(monitor_with_mechanism, stride=plan.stride)
            return list(train_group(plan.training(group[0].rows), group, folder, monitor))
    finally:
        close_hardware_watch()


def monitor_with_mechanism(run: LiveRun, log: Path, config: dict[str, Any], *, stride: int) -> TrainingMonitor:
    """The monitor of a twin or of a fork, every mechanism that the model has included."""
    return monitor_of(run, log, config, mechanism=MechanismWatch(run.model, run.optimizer, stride=stride))


WATCHED = Backend(
    name="torch",
    verb="training",
    execute=train_all,
    writing_parts=(
        "detectors/", "evaluation/ground_truth.py", "faults/", "metric.py", "records.py", "signals.py", "streams.py",
        "study.py", "training/",
    ),
    libraries=("numpy", "torch", "transformers", "orjson"),
)  # fmt: skip
"""Real training with the mechanism watched, for :func:`rmetric.study.run_study`."""
