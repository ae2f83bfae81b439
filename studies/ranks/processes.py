"""Processes of one process group, forked from one that has imported all they need: they start in milliseconds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from rmetric.engines.processes import belong_to_parent, ctrl_c_later, ready_for
from studies.processes import MEETING, end_in_group, join_gloo_group

ERRORS = "errors_{}.txt"
COLLECTIVE_TIMEOUT = timedelta(seconds=20)
"""Longest wait for a peer, which may have been killed before the processes have met."""


@contextmanager
def running(
    work: Callable[..., Any], processes: int, folder: Path, arguments: Sequence[Any]
) -> Iterator[list[BaseProcess]]:
    """Run ``work(rank, *arguments)`` in so many processes that meet through a file in a folder.

    Those that still run at the end of the block, as after Ctrl-C, are killed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MEETING).unlink(missing_ok=True)
    context = ready_for(work)
    started: list[BaseProcess] = []
    try:
        with ctrl_c_later():
            for rank in range(processes):
                process: BaseProcess = context.Process(
                    target=_in_group, args=(work, rank, processes, folder, arguments)
                )
                process.start()
                started.append(process)
        yield started
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.join()


def run_processes(work: Callable[..., Any], processes: int, folder: Path, arguments: Sequence[Any]) -> list[int]:
    """Run the processes to their ends; their exit codes."""
    with running(work, processes, folder, arguments) as started:
        for process in started:
            process.join()
        return [process.exitcode or 0 for process in started]


def errors_in(folder: Path) -> str:
    """What the processes that met in a folder last wrote to standard error."""
    return "".join(path.read_text(errors="replace") for path in sorted(folder.glob(ERRORS.format("*"))))


def _in_group(work: Callable[..., Any], rank: int, processes: int, folder: Path, arguments: Sequence[Any]) -> None:
    belong_to_parent()
    # To a file: whose peer was killed on purpose ends with a traceback that nobody is to see.
    os.dup2(os.open(folder / ERRORS.format(rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 2)
    join_gloo_group(folder, rank, processes, COLLECTIVE_TIMEOUT)
    work(rank, *arguments)
    end_in_group()
