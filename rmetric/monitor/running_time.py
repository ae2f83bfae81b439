"""A clock that stands still while a thread waits for a processor on which something else runs."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

WAITS = "/proc/thread-self/schedstat"
"""Nanoseconds that the calling thread ran, and those that it was ready to run and had to wait (Linux)."""
UNINTERRUPTED_S = 1e-4
"""Longest time that reading two clocks takes a thread that is left to run."""


class RunningTime:
    """Seconds that pass for a thread, but for those in which it was ready to run and had no processor.

    On a shared machine these are what another program costs; they are not the training's own, and they are no sign of
    hardware that fails. They count for the thread that calls, from one of its calls to the next: what the threads of
    a library wait for, the caller sees as its own time. Where the system does not count them, this is
    :func:`time.perf_counter`.

    A call takes some µs.

    >>> now = RunningTime()
    >>> 0.0 <= now() <= now()
    True
    """

    def __init__(self) -> None:
        self._thread = Waits()
        self._waited_s = self._thread.seconds()
        self._lost_s = 0.0

    def __call__(self) -> float:
        thread = self._thread
        if thread.number != threading.get_native_id():  # also in a process that was forked
            self._thread = thread = Waits()
            self._waited_s = thread.seconds()
        for _ in range(3):  # once, if the thread is not interrupted between the two
            now_s, waited_s = time.perf_counter(), thread.seconds()
            if time.perf_counter() - now_s < UNINTERRUPTED_S:
                break
        self._lost_s += waited_s - self._waited_s
        self._waited_s = waited_s
        return now_s - self._lost_s


class Waits:
    """How long the thread that makes this has waited for a processor.

    Keeps a file open: to open it takes ten times as long as to read it.
    """

    def __init__(self) -> None:
        self.number = threading.get_native_id()
        """Of the thread."""
        self._seconds = 0.0
        self._file: int | None = None
        with suppress(OSError):  # another system
            self._file = os.open(WAITS, os.O_RDONLY)

    def seconds(self) -> float:
        """Seconds since the thread began; stands still, from 0 on, where nobody counts them."""
        if self._file is not None:
            try:
                self._seconds = int(os.pread(self._file, 64, 0).split()[1]) * 1e-9
            except (OSError, ValueError, IndexError):
                self._close()
        return self._seconds

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
