"""Work in processes of their own, for training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

R = TypeVar("R")


def in_fresh_processes(
    work: Callable[..., R], tasks: Sequence[tuple[Any, ...]], processes: int
) -> Iterator[tuple[int, R]]:
    """Call ``work`` with the arguments of each task; yields (index of the task, result) as they are done.

    Fresh processes: a pool that others have used before may take torch, once imported, for a leak of memory. Ctrl-C, or
    a task that goes wrong, ends them all: logs are valid at any time.
    """
    with ProcessPoolExecutor(min(processes, len(tasks)), mp_context=get_context("spawn")) as pool:
        try:
            waiting = {pool.submit(work, *task): index for index, task in enumerate(tasks)}
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BaseException:
            for future in waiting:
                future.cancel()
            for process in active_children():
                process.terminate()
            raise
