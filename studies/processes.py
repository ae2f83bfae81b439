"""Devices and processes for training: which device a name means, and work in fresh processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_all_start_methods, get_context
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from rmetric.errors import UserError

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

R = TypeVar("R")


def device_of(name: str) -> torch.device:
    """A device by torch's name for it; ``auto``: the GPU if there is one. :class:`UserError` if it is not to be had."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"the device {name!r} is not to be had here; choose --device cpu") from error
    return device


def training_device(name: str) -> torch.device:
    """The device for a run of this process; on a CPU it then computes in a single thread.

    Several processes share the cores, and sums come out the same in each.
    """
    device = device_of(name)
    if device.type == "cpu":
        torch.set_num_threads(1)
    return device


def default_jobs(device: str) -> int:
    """One process a core on a CPU; one on an accelerator, whose memory they would share.

    Parameters
    ----------
    device
        ``auto``, or torch's name for it.
    """
    on_cpu = device == "cpu" or (device == "auto" and not torch.cuda.is_available())
    return (os.cpu_count() or 1) if on_cpu else 1


def ready_for(work: Callable[..., Any]) -> ForkServerContext | SpawnContext:
    """A context whose processes are forked from one that has imported the module of ``work``.

    They start in milliseconds instead of the seconds that torch and transformers take. What is forked from has trained
    nothing, so that each of its children is as good as new; where a system cannot fork, they are started one by one.
    """
    if "forkserver" not in get_all_start_methods():
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload([work.__module__])
    return context


def in_fresh_processes(
    work: Callable[..., R], tasks: Sequence[tuple[Any, ...]], processes: int
) -> Iterator[tuple[int, R]]:
    """Call ``work`` with the arguments of each task; yields (index of the task, result) as they are done.

    Fresh processes: a pool that others have used before may take torch, once imported, for a leak of memory. Ctrl-C, or
    a task that goes wrong, ends them all: logs are valid at any time.
    """
    of_others = {*active_children()}
    with ProcessPoolExecutor(min(processes, len(tasks)), mp_context=ready_for(work)) as pool:
        try:
            waiting = {pool.submit(work, *task): index for index, task in enumerate(tasks)}
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BaseException:
            for future in waiting:
                future.cancel()
            for process in {*active_children()} - of_others:
                process.terminate()
            raise
