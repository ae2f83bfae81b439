"""Run a command and count what all of its processes have used, those that were forked from another one included."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, NamedTuple

from rmetric.errors import UserError

PR_SET_CHILD_SUBREAPER = 36


class Used(NamedTuple):
    """What a command has used, its own processes included."""

    seconds: float
    """From its start until it ended."""
    processor_s: float
    """Processor time of all processes, seconds."""
    peak_mib: float
    """Largest resident memory of one of them."""


def run(command: Sequence[str], stdout: int | IO[str]) -> Used:
    """Run a command to the end of its last process; :class:`UserError` if it fails.

    The process that others are forked from outlives the command by a moment: on Linux it is then this one's to wait for
    and counts as well, elsewhere its processes are missing.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    began, seconds, processor_s, peak_kib = time.perf_counter(), 0.0, 0.0, 0
    process = subprocess.Popen(command, stdout=stdout)
    with suppress(ChildProcessError):  # none is left
        while True:
            pid, status, used = os.wait4(-1, 0)
            processor_s += used.ru_utime + used.ru_stime
            peak_kib = max(peak_kib, used.ru_maxrss)
            if pid == process.pid:
                seconds, process.returncode = time.perf_counter() - began, os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise UserError(f"{' '.join(command)} ended with status {process.returncode}; its last words are above")
    return Used(seconds, processor_s, peak_kib / 1024)
