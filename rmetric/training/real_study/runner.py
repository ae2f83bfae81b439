"""Groups of runs in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rmetric.registry import load_plugin
from rmetric.study import Backend, Finished
from rmetric.training.forking import close_hardware_watch
from rmetric.training.models.memory import out_of_memory_in_one_line
from rmetric.training.processes import in_fresh_processes
from rmetric.training.real_study.group import train_group
from rmetric.training.real_study.plan import RealSpec, RealStudyPlan, groups_of


def train_all(
    plan: RealStudyPlan, todo: Sequence[RealSpec], folder: Path, jobs: int, plugins: Sequence[Path]
) -> Iterator[list[Finished]]:
    """Train the runs that are still to do; yields those of a group when it is done."""
    groups = groups_of(todo)
    if jobs == 1 or len(groups) == 1:
        for group in groups:
            yield _train_group_into(plan, group, folder, ())
        return
    tasks = [(plan, group, folder, tuple(plugins)) for group in groups]
    for _, finished in in_fresh_processes(_train_group_into, tasks, jobs):
        yield finished


def _train_group_into(
    plan: RealStudyPlan, group: Sequence[RealSpec], folder: Path, plugins: Sequence[Path]
) -> list[Finished]:
    for plugin in plugins:
        load_plugin(plugin)
    try:
        with out_of_memory_in_one_line("training"):
            return list(train_group(plan, group, folder))
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
