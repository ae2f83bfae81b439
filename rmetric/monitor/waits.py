"""How long a thread has waited for a processor on which something else ran."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

COUNTED = "/proc/thread-self/schedstat"
"""Nanoseconds that the calling thread ran, and those that it was ready to run and had to wait (Linux)."""


class Waits:
    """Seconds for which the thread that calls was ready to run and had no processor; only ever more.

    On a shared machine these are what other programs cost: not the training's own time, and no sign of hardware that
    fails. They count for the thread that calls, from one of its calls to the next; what the threads of a library wait
    for, the caller sees as its own time. 0 where the system does not count them.

    A call takes some µs, and up to 30 where it comes once in a long step.

    >>> waited = Waits()
    >>> waited() <= waited()
    True
    """

    def __init__(self) -> None:
        self._thread = ThreadWaits()
        self._seconds = 0.0
        self._before_s = self._thread.seconds()

    def __call__(self) -> float:
        thread = self._thread
        if thread.number != threading.get_native_id():  # also in a process that was forked
            self._thread = thread = ThreadWaits()
            self._before_s = thread.seconds()
        now_s = thread.seconds()
        self._seconds += now_s - self._before_s
        self._before_s = now_s
        return self._seconds


def own_clock() -> Callable[[], float]:
    """A clock that stands still while the thread that calls waits for a processor, seconds.

    Where a thread waits between the two looks that make a reading, two readings may differ by less than nothing.
    """
    waited = Waits()
    return lambda: time.perf_counter() - waited()


class ThreadWaits:
    """The count of the thread that makes this.

    Keeps a file open: to open it takes ten times as long as to read it.
    """

    def __init__(self) -> None:
        self.number = threading.get_native_id()
        """Of the thread."""
        self._seconds = 0.0
        self._file: int | None = None
        with suppress(OSError):  # another system
            self._file = os.open(COUNTED, os.O_RDONLY)

    def seconds(self) -> float:
        """Seconds since the thread began; stands still, from 0 on, where nobody counts them."""
        if self._file is not None:
            try:
                self._seconds = int(os.pread(self._file, 64, 0).split()[1]) * 1e-9
            except (OSError, ValueError, IndexError):
                self._close()
        return self._seconds

    def __reduce__(self) -> NoReturn:
        raise TypeError("an open file cannot be copied: two would close it")

    def __del__(self) -> None:
        self._close()

    def _close(self, close: Callable[[int], None] = os.close) -> None:  # modules are gone when the interpreter ends
        file, self._file = self._file, None
        if file is not None:
            close(file)
