"""Processes of this machine, by joblib."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from joblib import Parallel, delayed
from joblib.externals.loky.process_executor import TerminatedWorkerError

from rmetric.errors import UserError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class LocalEngine:
    """A pool of processes; with one job, the process that asks."""

    jobs: int

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """See :class:`rmetric.engines.Engine`."""
        try:
            yield from Parallel(n_jobs=self.jobs, return_as="generator")(delayed(work)(item) for item in items)
        except TerminatedWorkerError as error:
            raise UserError("a process was killed; what it finished is kept: go on with --resume") from error


def connected(jobs: int, address: str | None) -> AbstractContextManager[LocalEngine]:
    """An engine of ``jobs`` processes; :class:`UserError` if there is an address."""
    if address is not None:
        raise UserError("--address is that of a scheduler; add --engine dask or --engine ray")
    return nullcontext(LocalEngine(jobs))
