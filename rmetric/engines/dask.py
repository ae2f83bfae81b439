"""Workers of a Dask cluster. A unit whose worker died is worked on by another one."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import dask
from distributed import Client, Future, KilledWorker, LocalCluster, rpc
from distributed.client import FutureCancelledError
from distributed.comm import CommClosedError
from distributed.security import Security
from distributed.utils import LoopRunner

from rmetric.engines.local import ENVIRONMENT
from rmetric.engines.processes import ctrl_c_later
from rmetric.engines.window import in_order
from rmetric.errors import UserError

T = TypeVar("T")
R = TypeVar("R")
CONNECT_TIMEOUT_S = 10
SILENCE_S, WORKERS_TIMEOUT_S = 5, 300
"""Without any worker: the time until that is told, and the time from there until the script ends."""
_TALKATIVE = ("distributed", "distributed.client", "distributed.gc", "tornado.application", "asyncio")
"""Loggers with levels of their own, by which Dask tells in pages what our one line says."""


@dataclass(frozen=True)
class DaskEngine:
    """Workers that a client reaches."""

    client: Client

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """See :class:`rmetric.engines.Engine`."""

        def submit(item: T) -> Future:
            return self.client.submit(work, item, pure=False)

        try:
            yield from in_order(submit, self._result, items, self._processes)
        except KilledWorker as error:
            raise UserError(
                "workers died again and again over the same unit, perhaps for want of memory; "
                "what is finished is kept: give workers more of it and go on with --resume"
            ) from error
        except (RuntimeError, ModuleNotFoundError) as error:
            if not _lacks_repository(error):
                raise
            raise UserError("the scheduler or a worker lacks this repository; PYTHONPATH: docs/scale.md") from error
        except (FutureCancelledError, CommClosedError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # of the unit, such as a full disk
            raise UserError(
                "the scheduler is gone or was restarted; what is finished is kept: go on with --resume"
            ) from error

    def _result(self, future: Future) -> Any:
        while not future.done():
            with suppress(TimeoutError):  # one of the unit's own comes again below
                return future.result(SILENCE_S)
            self._await_worker()
        return future.result()

    def _await_worker(self) -> None:
        """Wait until there is a worker; not before work is handed out, for some clusters start none without."""
        if self._processes():
            return
        where = self.client.scheduler.address
        print(f"waiting for workers of {where}", file=sys.stderr)
        try:
            self.client.wait_for_workers(1, WORKERS_TIMEOUT_S)
        except TimeoutError as error:
            raise UserError(
                f"{where} was without workers for {WORKERS_TIMEOUT_S} s; what is finished is kept: start workers that "
                "have this repository (docs/scale.md), and go on with --resume"
            ) from error

    def _processes(self) -> int:
        return sum(self.client.ncores().values())


def _lacks_repository(error: RuntimeError | ModuleNotFoundError) -> bool:
    if isinstance(error, ModuleNotFoundError):
        return str(error.name).partition(".")[0] in ("rmetric", "studies")
    return "deserialization of the task graph" in str(error)


def dask_setup(worker: object) -> None:
    """Leave Ctrl-C to the process that asks; Dask calls this in each worker that is started here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _hush()


def _hush() -> None:
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave it to our one line to say what goes wrong."""
    levels = {logger: logger.level for logger in map(logging.getLogger, _TALKATIVE)}
    _hush()
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def _started_here(jobs: int) -> LocalCluster:
    free_port = {"dashboard_address": "127.0.0.1:0"}  # of its HTTP server, which is there without a dashboard as well
    try:
        return LocalCluster(n_workers=jobs, threads_per_worker=1, dashboard_address=None, scheduler_kwargs=free_port)
    except RuntimeError as error:
        raise UserError(
            "a worker ended while it started, perhaps for want of memory; lower --jobs, or run it again"
        ) from error


@contextmanager
def _told_if_absent(address: str | None) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, MemoryError) as error:  # another program's greeting passes for the length of a message
        raise UserError(f"no Dask scheduler answers at {address}; start one: docs/scale.md") from error


async def _check_answers(address: str) -> None:
    """Raise an error if no scheduler is there: ``Client`` would wait for ever for a program that says nothing."""
    of_tls = Security().get_connection_args("client")
    async with asyncio.timeout(CONNECT_TIMEOUT_S), rpc(address, connection_args=of_tls) as scheduler:
        await scheduler.identity()


@contextmanager
def connected(jobs: int, address: str | None) -> Iterator[DaskEngine]:
    """The workers of a scheduler; without an address, ``jobs`` workers that are started here."""
    with ExitStack() as stack:
        preload = [*dask.config.get("distributed.worker.preload"), __name__]
        ours = {"distributed.nanny.pre-spawn-environ": ENVIRONMENT, "distributed.worker.preload": preload}
        stack.enter_context(dask.config.set(ours))  # of workers that are started here
        stack.enter_context(_quiet())  # to the very end, for connections are told of as they close
        if address:
            with _told_if_absent(address):
                LoopRunner().run_sync(_check_answers, address)  # a notebook has a loop that runs
        with ctrl_c_later():
            cluster = address or stack.enter_context(_started_here(jobs))
            with _told_if_absent(address):
                client = stack.enter_context(Client(cluster, timeout=CONNECT_TIMEOUT_S))
        yield DaskEngine(client)
