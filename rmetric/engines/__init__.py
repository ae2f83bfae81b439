"""Engines: the processes, on this machine or on a cluster, that work on the units of a study.

Units are idempotent: one that is worked on twice, because the process that had it died, gives the same result and
writes the same file under the same name. That is all that an engine asks of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Protocol, TypeVar

from rmetric.engines.local import LocalEngine, start_ahead
from rmetric.errors import UserError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

T = TypeVar("T")
R = TypeVar("R")
__all__ = ["ENGINES", "Engine", "engine", "parallel_map", "start_ahead"]
ENGINES = ("local", "dask", "ray")
"""Each is a module of this package with a function ``connected(jobs, address)``."""


class Engine(Protocol):
    """A set of processes."""

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """``work`` on every item; results in the order of the items, a bounded number of them in memory.

        Parameters
        ----------
        work
            Function of a module, so that other processes can import it.
        items
            Anything that can be pickled.

        Raises
        ------
        UserError
            If the engine itself is gone. What ``work`` raises is raised as it is.
        """
        ...


_chosen: ContextVar[Engine | None] = ContextVar("engine", default=None)


@contextmanager
def engine(name: str, jobs: int, address: str | None = None) -> Iterator[Engine]:
    """Use an engine for all parallel work within the ``with`` block.

    Parameters
    ----------
    name
        One of :data:`ENGINES`.
    jobs
        Processes, where the engine is started here.
    address
        Of a running scheduler (Dask: ``tcp://HOST:8786``; Ray: ``HOST:6379`` or ``auto``); without it, one is started
        on this machine.

    Raises
    ------
    UserError
        If the engine is not installed or does not answer, if the address is empty, or if there is one for ``local``.
    """
    if address == "":
        raise UserError("--address is empty, as of a variable that is not set; give that of a scheduler, or none")
    try:
        module = importlib.import_module(f"rmetric.engines.{name}")
        opened: AbstractContextManager[Engine] = module.connected(jobs, address)
    except ImportError as error:
        raise UserError(f"--engine {name} is not installed; pip install 'rmetric[{name}]'") from error
    with opened as found:
        token = _chosen.set(found)
        try:
            yield found
        finally:
            _chosen.reset(token)


def parallel_map(work: Callable[[T], R], items: Iterable[T], jobs: int) -> Iterator[R]:
    """:meth:`Engine.map` of the engine in use, or of ``jobs`` processes of this machine if none is."""
    return (_chosen.get() or _of_this_machine(jobs)).map(work, items)


_of_this_machine = cache(LocalEngine)
