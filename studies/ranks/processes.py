"""Processes of one process group, forked from one that has imported all they need: they start in milliseconds."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rmetric.engines.processes import ready_for

COLLECTIVE_TIMEOUT = timedelta(seconds=20)
"""Longest wait for a peer, which may have been killed before the processes have met."""


def start_processes(
    work: Callable[..., Any], processes: int, folder: Path, arguments: Sequence[Any]
) -> list[BaseProcess]:
    """Start ``work(rank, *arguments)`` in so many processes that meet through a file in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    meeting = (folder / "rendezvous").resolve()
    meeting.unlink(missing_ok=True)
    context = ready_for(work)
    started: list[BaseProcess] = [
        context.Process(target=_in_group, args=(work, rank, processes, meeting.as_uri(), arguments))
        for rank in range(processes)
    ]
    for process in started:
        process.start()
    return started


def run_processes(work: Callable[..., Any], processes: int, folder: Path, arguments: Sequence[Any]) -> list[int]:
    """Start the processes and wait for them; their exit codes."""
    started = start_processes(work, processes, folder, arguments)
    for process in started:
        process.join()
    return [process.exitcode or 0 for process in started]


def _in_group(work: Callable[..., Any], rank: int, processes: int, meeting: str, arguments: Sequence[Any]) -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=processes, timeout=COLLECTIVE_TIMEOUT)
    work(rank, *arguments)
    os._exit(0)  # Gloo's threads are not always ready to be taken down
