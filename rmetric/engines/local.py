"""Processes of this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from rmetric.engines.processes import pool_for, start_server
from rmetric.engines.window import in_order
from rmetric.errors import UserError

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

T = TypeVar("T")
R = TypeVar("R")
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**28)}
"""Otherwise glibc hands memory of large arrays back to the system, again and again, and each page costs anew."""
ENVIRONMENT = {**dict.fromkeys(ONE_THREAD, "1"), **KEPT_MEMORY}
"""Variables of the processes: each computes in one thread, and keeps the memory that it has once had."""


class LocalEngine:
    """Processes of this machine, kept for the next work with what they have imported; of one job, the one that asks."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._pools = ExitStack()
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._pool = None
        self._pools.__exit__(*error)

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> Generator[R]:
        """See :class:`rmetric.engines.Engine`. An error, or a caller that stops early, ends the processes at once."""
        if self._jobs == 1:
            yield from map(work, items)
            return
        with _environment():
            pool = self._pool = self._pool or self._pools.enter_context(pool_for(work, self._jobs))

        def submit(item: T) -> Future[R]:
            with _environment(), _script_left_alone():  # processes are started when there is work for them
                return pool.submit(work, item)

        try:
            yield from in_order(submit, Future.result, items, lambda: self._jobs)
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            if isinstance(error, BrokenProcessPool):
                told = "a process was killed; what it finished is kept: go on with --resume, or run it again"
                raise UserError(told) from error
            raise


def start_ahead(module: str) -> None:
    """Start to import a module where processes will be forked from, for work of that module; does not wait for it."""
    with _environment():
        start_server(module)


@contextmanager
def _environment() -> Iterator[None]:
    """Give processes that are started in here :data:`ENVIRONMENT`, but for what the user has set."""
    ours = {name: value for name, value in ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


@contextmanager
def _script_left_alone() -> Iterator[None]:
    """Let processes that are started in here not run the user's script again: what they work on stands in modules.

    Python would, and a script whose commands do not hang on ``if __name__ == "__main__"`` would start processes without
    end. A module that was run by ``python -m`` may hold the work itself, and is imported as ever.
    """
    script = sys.modules["__main__"]
    if script.__spec__ is None:
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def connected(jobs: int, address: str | None) -> LocalEngine:
    """An engine of ``jobs`` processes; :class:`UserError` if there is an address."""
    if address is not None:
        raise UserError("--address is that of a scheduler; add --engine dask or --engine ray")
    return LocalEngine(jobs)
