"""Workers of a Ray cluster. A unit whose worker died is worked on by another one."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import ray
from ray.exceptions import RayError, RayTaskError

from rmetric.engines.window import in_order
from rmetric.errors import UserError

T = TypeVar("T")
R = TypeVar("R")
CONNECT_TIMEOUT_S = 10
DEATHS = 3
"""Workers that may die over one unit, as many as Dask allows."""


@dataclass(frozen=True)
class RayEngine:
    """Workers of the cluster that this process is connected to."""

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """See :class:`rmetric.engines.Engine`."""
        remote: Any = ray.remote(max_retries=DEATHS)(_unit)
        try:
            yield from in_order(partial(remote.remote, work), ray.get, items, _processes)
        except RayTaskError as error:
            raise error.cause from error
        except RayError as error:
            raise UserError(
                f"Ray gave up ({type(error).__name__}); what is finished is kept: go on with --resume"
            ) from error


def _processes() -> int:
    return int(ray.cluster_resources().get("CPU", 0))


def _unit(work: Callable[[T], R], item: T) -> R:
    """Function of a module, which Ray asks for; ``work`` may be a partial one."""
    return work(item)


def _check_answers(address: str) -> None:
    """Raise ``ConnectionError`` if nobody is at ``HOST:PORT`` or ``ray://HOST:PORT``: Ray itself waits for minutes."""
    where = urlsplit(address if "://" in address else f"//{address}")
    if where.hostname and where.port:
        try:
            socket.create_connection((where.hostname, where.port), CONNECT_TIMEOUT_S).close()
        except OSError as error:
            raise ConnectionError(str(error)) from error


@contextmanager
def connected(jobs: int, address: str | None) -> Iterator[RayEngine]:
    """The workers of a cluster; without an address, ``jobs`` workers that are started here."""
    here: dict[str, Any] = {} if address else {"num_cpus": jobs, "include_dashboard": False}
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        _check_answers(address or "")
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **here)
    except (ConnectionError, ValueError) as error:
        raise UserError(f"no Ray cluster answers at {address}; start one: docs/scale.md") from error
    if signal.getsignal(signal.SIGTERM) is not on_sigterm:  # Ray's own ends this process without a word
        signal.signal(signal.SIGTERM, on_sigterm)
    try:
        yield RayEngine()
    finally:
        ray.shutdown()
