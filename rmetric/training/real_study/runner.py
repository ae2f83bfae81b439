"""Groups of runs in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context
from pathlib import Path

from rmetric.registry import load_plugin
from rmetric.study import Backend, Finished
from rmetric.training.forking import close_hardware_watch
from rmetric.training.models.memory import out_of_memory_in_one_line
from rmetric.training.real_study.group import train_group
from rmetric.training.real_study.plan import RealSpec, RealStudyPlan, groups_of


def train_all(
    plan: RealStudyPlan, todo: Sequence[RealSpec], folder: Path, jobs: int, plugins: Sequence[Path]
) -> Iterator[list[Finished]]:
    """Train the runs that are still to do; yields those of a group when it is done.

    Fresh processes: a pool that others have used before may take torch, once imported, for a leak of memory.
    """
    groups = groups_of(todo)
    if jobs == 1 or len(groups) == 1:
        for group in groups:
            yield _train_group_into(plan, group, folder, ())
        return
    with ProcessPoolExecutor(min(jobs, len(groups)), mp_context=get_context("spawn")) as pool:
        try:
            waiting: list[Future[list[Finished]]] = [
                pool.submit(_train_group_into, plan, group, folder, tuple(plugins)) for group in groups
            ]
            for done in as_completed(waiting):
                yield done.result()
        except BaseException:  # Ctrl-C, or a run that went wrong: the logs that have their names are whole
            for future in waiting:
                future.cancel()
            for process in active_children():
                process.terminate()
            raise


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
