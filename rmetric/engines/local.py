"""Processes of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from rmetric.engines.processes import pool_for
from rmetric.engines.window import in_order
from rmetric.errors import UserError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

T = TypeVar("T")
R = TypeVar("R")
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**28)}
"""Otherwise glibc hands memory of large arrays back to the system, again and again, and each page costs anew."""
ENVIRONMENT = {**dict.fromkeys(ONE_THREAD, "1"), **KEPT_MEMORY}
"""Variables of the processes: each computes in one thread, and keeps the memory that it has once had."""


@dataclass(frozen=True)
class LocalEngine:
    """A pool of processes; with one job, the process that asks."""

    jobs: int

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> Generator[R]:
        """See :class:`rmetric.engines.Engine`."""
        if self.jobs == 1:
            yield from map(work, items)
            return

        def submit(item: T) -> Future[R]:
            with _environment():  # processes are started when there is work for them
                return pool.submit(work, item)

        try:
            with pool_for(work, self.jobs) as pool:
                yield from in_order(submit, Future.result, items, self.jobs)
        except BrokenProcessPool as error:
            told = "a process was killed; what it finished is kept: go on with --resume, or run it again"
            raise UserError(told) from error


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


def connected(jobs: int, address: str | None) -> AbstractContextManager[LocalEngine]:
    """An engine of ``jobs`` processes; :class:`UserError` if there is an address."""
    if address is not None:
        raise UserError("--address is that of a scheduler; add --engine dask or --engine ray")
    return nullcontext(LocalEngine(jobs))
