"""Processes that start in milliseconds: forked from one that has imported their work."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import (
    active_children,
    forkserver,
    get_all_start_methods,
    get_context,
    parent_process,
    resource_tracker,
)
from threading import Thread, current_thread, main_thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext


def ready_for(work: Callable[..., Any]) -> ForkServerContext | SpawnContext:
    """A context whose processes are forked from one that has imported the module of ``work``.

    They start in milliseconds instead of the seconds that torch and transformers take. What is forked from has worked
    on nothing, so that each of its children is as good as new; where a system cannot fork, they are started one by one.
    """
    if "forkserver" not in get_all_start_methods():
        return get_context("spawn")
    while isinstance(work, partial):
        work = work.func
    start_server(work.__module__)
    return get_context("forkserver")


def start_server(module: str) -> None:
    """Start the process that others are forked from, which begins to import ``module``, where a system can fork."""
    if "forkserver" in get_all_start_methods():
        forkserver.set_forkserver_preload([module, "rmetric.engines.ctrl_c_again"])
        with ctrl_c_later():
            forkserver.ensure_running()


@contextmanager
def ctrl_c_later() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait for the end of the block: what cannot be ended while it starts fills the screen.

    What is started within inherits that Ctrl-C is blocked, so that a process which still imports is not ended by it
    either; SIGTERM is what ends workers.
    """
    if current_thread() is not main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # whoever starts it unblocks the signal
    heard: list[int] = []  # Ctrl-C by a thread that was there before, and so blocks nothing
    before = {
        number: signal.signal(number, lambda number, frame: heard.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not None  # else it is not Python's, which could not give it back
    }
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        if heard:
            signal.raise_signal(heard[0])


class _Pool(ProcessPoolExecutor):
    """A pool that starts each process whole: one that is broken off has nobody who would end it."""

    def submit(self, *work: Any, **options: Any) -> Future[Any]:  # type: ignore[override]
        with ctrl_c_later():
            return super().submit(*work, **options)


@contextmanager
def pool_for(work: Callable[..., Any], processes: int, *first: Callable[[], object]) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes for ``work``, each of which calls ``first`` as it starts.

    Ctrl-C, or an error within the ``with`` block, ends them all at once.
    """
    of_others = {*active_children()}
    with _Pool(processes, mp_context=ready_for(work), initializer=_begin, initargs=first) as pool:
        try:
            yield pool
        except BaseException:
            thread = getattr(pool, "_executor_manager_thread", None)
            pool.shutdown(wait=False, cancel_futures=True)
            for process in {*active_children()} - of_others:
                process.terminate()
            if thread is not None:  # Python, at its own end, would wake it by a pipe that it may just be closing
                thread.join()
            raise


def _begin(*first: Callable[[], object]) -> None:
    belong_to_parent()
    for each in first:
        each()


def belong_to_parent() -> None:
    """Leave Ctrl-C to the process that asks, and end when it does, even where it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
