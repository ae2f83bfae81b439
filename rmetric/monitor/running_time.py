"""A clock that stands still while a thread waits for a processor on which something else runs."""

from __future__ import annotations

import os
import threading
import time

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

    A call takes about 5 µs.

    >>> now = RunningTime()
    >>> 0.0 <= now() <= now()
    True
    """

    def __init__(self) -> None:
        self._thread = 0
        self._waited_s = self._lost_s = 0.0

    def __call__(self) -> float:
        seconds, waited_s = self._read()
        thread = threading.get_native_id()
        if thread == self._thread:
            self._lost_s += waited_s - self._waited_s
        self._thread, self._waited_s = thread, waited_s
        return seconds - self._lost_s

    def _read(self) -> tuple[float, float]:
        """The time and the waits so far, seconds, of one moment: read again if the thread had to wait in between."""
        for _ in range(3):
            before_s, waited_s = time.perf_counter(), waited()
            if time.perf_counter() - before_s < UNINTERRUPTED_S:
                break
        return before_s, waited_s


def waited() -> float:
    """Seconds that the calling thread has waited for a processor since it began; 0 where nobody counts them."""
    try:
        file = os.open(WAITS, os.O_RDONLY)
        try:
            return int(os.read(file, 64).split()[1]) * 1e-9
        finally:
            os.close(file)
    except (OSError, ValueError, IndexError):
        return 0.0
