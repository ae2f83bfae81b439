"""Devices and processes for training: which device a name means, fresh processes, groups of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, as_completed, wait
from datetime import timedelta
from functools import partial
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist

from rmetric.engines.processes import pool_for, ready_for
from rmetric.errors import UserError

R = TypeVar("R")
MEETING = "rendezvous"
"""Name of the file through which processes of a group meet."""


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
    """One process a core on a CPU; one on an accelerator, whose memory they would share."""
    on_cpu = device == "cpu" or (device == "auto" and not torch.cuda.is_available())
    return (os.cpu_count() or 1) if on_cpu else 1


def in_fresh_processes(
    work: Callable[..., R], tasks: Sequence[tuple[Any, ...]], processes: int
) -> Iterator[tuple[int, R]]:
    """Call ``work`` with the arguments of each task; yields (index of the task, result) as they are done.

    Ctrl-C, or a task that goes wrong, ends them all: logs are valid at any time.
    """
    with pool_for(work, min(processes, len(tasks))) as pool:
        waiting = {pool.submit(work, *task): index for index, task in enumerate(tasks)}
        for done in as_completed(waiting):
            yield waiting[done], done.result()


def each_from_fresh_processes(
    work: Callable[..., Iterable[R]], tasks: Sequence[tuple[Any, ...]], processes: int
) -> Iterator[R]:
    """Call ``work`` with the arguments of each task; yields each thing that it yields, within a second, in any order.

    What ends them all is that of :func:`in_fresh_processes`.
    """
    items = ready_for(work).SimpleQueue()
    with pool_for(work, min(processes, len(tasks)), partial(_send_to, items)) as pool:
        waiting = {pool.submit(_send_each, work, *task) for task in tasks}
        while waiting:
            done, waiting = wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED)
            while not items.empty():  # it holds all that those have sent which are done
                yield items.get()
            for each in done:
                each.result()


_parent: SimpleQueue[Any]
"""In a process of :func:`each_from_fresh_processes`."""


def _send_to(items: SimpleQueue[Any]) -> None:
    global _parent
    _parent = items


def _send_each(work: Callable[..., Iterable[Any]], *task: Any) -> None:
    for item in work(*task):
        _parent.put(item)


def join_gloo_group(folder: Path, rank: int, processes: int, timeout: timedelta) -> None:
    """Make this process one of a group on the CPU, which meets through a file in a folder.

    Parameters
    ----------
    folder
        Existing folder, the same for all; a file that another group has left there would mislead them.
    rank, processes
        Number of this process, from 0, and of all.
    timeout
        Longest wait for a peer, here and in each collective operation.
    """
    torch.set_num_threads(1)
    if sys.platform == "linux":  # other systems call it differently
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # whatever the machine is called and however it is connected
    meeting = (folder / MEETING).resolve().as_uri()  # a file: no port that could be taken
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=processes, timeout=timeout)


def end_in_group() -> NoReturn:
    """End this process, all of whose work is done.

    One that takes Gloo's threads down itself is aborted now and then on a busy machine ("terminate called without an
    active exception").
    """
    os._exit(0)
