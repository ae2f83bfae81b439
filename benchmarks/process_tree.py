"""Run a command and count what all of its processes have used, those that were forked from another one included."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, NamedTuple

from rmetric.cli import psutil_only
from rmetric.errors import UserError

with psutil_only():
    import psutil

PR_SET_CHILD_SUBREAPER = 36
LOOKED_EVERY_S = 0.25
"""Seldom: to read a process's memory map holds that process up."""


class Used(NamedTuple):
    """What a command has used, its own processes included."""

    seconds: float
    """From its start until it ended."""
    processor_s: float
    """Processor time of all processes, seconds."""
    peak_mib: float
    """Largest memory of all at one time; what several share counts once."""


def run(command: Sequence[str], stdout: int | IO[str]) -> Used:
    """Run a command to the end of its last process; :class:`UserError` if it fails.

    The process that others are forked from outlives the command by a moment: on Linux it is then this one's to wait for
    and counts as well, elsewhere its processes are missing.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    began, seconds, processor_s = time.perf_counter(), 0.0, 0.0
    process = subprocess.Popen(command, stdout=stdout)
    with _watched() as seen_mib, suppress(ChildProcessError):  # none is left
        while True:
            pid, status, used = os.wait4(-1, 0)
            processor_s += used.ru_utime + used.ru_stime
            if pid == process.pid:
                seconds, process.returncode = time.perf_counter() - began, os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise UserError(f"{' '.join(command)} ended with status {process.returncode}; its last words are above")
    return Used(seconds, processor_s, max(seen_mib, default=0.0))


@contextmanager
def _watched() -> Iterator[list[float]]:
    """Memory of all children together, MiB, as often as it is looked at within the block."""
    seen: list[float] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOKED_EVERY_S):
            seen.append(sum(map(_memory_mib, psutil.Process().children(recursive=True))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def _memory_mib(process: psutil.Process) -> float:
    """Of one process; 0 once it is gone. Where the system does not tell what is shared, it is left out."""
    with suppress(psutil.NoSuchProcess):
        memory = process.memory_full_info()
        return float(getattr(memory, "pss", memory.uss)) / 2**20
    return 0.0
