"""Processes of this machine, by joblib."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable
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
SAID_BY_JOBLIB = ("A worker stopped while some jobs were given", ".*have been cancelled")
"""Warnings of a worker that is replaced because it has grown, and of a pool that is closed early. No work is lost. The
first comes in a thread of joblib's own: as an error it would end that thread, and everybody would wait for ever."""


@dataclass(frozen=True)
class LocalEngine:
    """A pool of processes; with one job, the process that asks."""

    jobs: int

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> Generator[R]:
        """See :class:`rmetric.engines.Engine`."""
        for said in SAID_BY_JOBLIB:
            warnings.filterwarnings("ignore", said, UserWarning)
        try:
            yield from Parallel(n_jobs=self.jobs, return_as="generator")(delayed(work)(item) for item in items)
        except TerminatedWorkerError as error:
            told = "a process was killed; what it finished is kept: go on with --resume, or run it again"
            raise UserError(told) from error


def connected(jobs: int, address: str | None) -> AbstractContextManager[LocalEngine]:
    """An engine of ``jobs`` processes; :class:`UserError` if there is an address."""
    if address is not None:
        raise UserError("--address is that of a scheduler; add --engine dask or --engine ray")
    return nullcontext(LocalEngine(jobs))
