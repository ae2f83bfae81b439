"""Devices and processes for training: which device a name means, and work in fresh processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from typing import Any, TypeVar

import torch

from rmetric.engines.processes import pool_for
from rmetric.errors import UserError

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
