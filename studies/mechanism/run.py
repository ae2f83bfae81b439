"""Groups of runs in processes of their own, each with the mechanism monitors on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rmetric.live.run import LiveRun
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.mechanism import MechanismWatch
from rmetric.twins.watching import monitor_of
from studies.log_files import Finished
from studies.mechanism.plan import MechanismPlan, MechanismSpec
from studies.real_runs.plan import groups_of
from studies.real_runs.run import TORCH, train_tasks


def train_all(
    plan: MechanismPlan, todo: Sequence[MechanismSpec], folder: Path, jobs: int, plugins: Sequence[Path]
) -> Iterator[list[Finished]]:
    """Train the runs that are still to do; yields each when its log is whole. First seeds first."""
    groups = sorted(groups_of(todo), key=lambda group: group[0].repetition)
    monitor = partial(monitor_with_mechanism, stride=plan.stride)
    tasks = [(plan.training(group[0].rows), group, folder, tuple(plugins), monitor) for group in groups]
    return train_tasks(tasks, jobs)


def monitor_with_mechanism(run: LiveRun, log: Path, config: dict[str, Any], *, stride: int) -> TrainingMonitor:
    """The monitor of a twin or of a fork, every mechanism that the model has included."""
    return monitor_of(run, log, config, mechanism=MechanismWatch(run.model, run.optimizer, stride=stride))


WATCHED = replace(TORCH, execute=train_all)
"""Real training with the mechanism watched, for :func:`studies.runner.run_study`."""
