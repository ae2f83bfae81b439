"""Processes that start in milliseconds: forked from one that has imported their work."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import active_children, forkserver, get_all_start_methods, get_context, parent_process
from threading import Thread
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
    context = get_context("forkserver")
    context.set_forkserver_preload([work.__module__])
    return context


def start_server(module: str) -> None:
    """Start the process that others are forked from, which begins to import ``module``, where a system can fork."""
    if "forkserver" in get_all_start_methods():
        forkserver.set_forkserver_preload([module])
        forkserver.ensure_running()


@contextmanager
def pool_for(work: Callable[..., Any], processes: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes for ``work``. Ctrl-C, or an error within the ``with`` block, ends them all at once."""
    of_others = {*active_children()}
    with ProcessPoolExecutor(processes, mp_context=ready_for(work), initializer=_belong_to_parent) as pool:
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


def _belong_to_parent() -> None:
    """Leave Ctrl-C to the process that asks, and end when it does, even where it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
