"""Groups of runs in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rmetric.registry import load_plugin
from rmetric.study import Backend, Finished
from rmetric.training.forking import close_hardware_watch, monitor_of
from rmetric.training.models.memory import out_of_memory_in_one_line
from rmetric.training.processes import in_fresh_processes
from rmetric.training.real_study.group import MakeMonitor, train_group
from rmetric.training.real_study.plan import RealSpec, RealStudyPlan, groups_of

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
    writing_parts=(
        "detectors/", "evaluation/ground_truth.py", "faults/", "metric.py", "records.py", "signals.py", "streams.py",
        "study.py", "training/",
    ),
    libraries=("numpy", "torch", "transformers", "orjson"),
)  # fmt: skip
"""Real training, for :func:`rmetric.study.run_study`."""
