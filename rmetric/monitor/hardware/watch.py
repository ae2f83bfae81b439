"""Poll the sources of hardware reports in the background, and queue their reports."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, TypeVar

from rmetric.errors import on_one_line
from rmetric.monitor.hardware.kernel_log import KernelLogSource
from rmetric.monitor.hardware.nvml import NvmlSource
from rmetric.monitor.hardware.reports import HardwareReport, HardwareSource, HardwareUnavailable

QUEUE_LENGTH = 1_000
"""Most reports that wait to be fetched; λ looks at the last 50."""
NOTES_LENGTH = 16
"""Most warnings that wait to be fetched."""
SAME_EVENT_S = 5.0
"""Time, beyond that between two polls, within which two reports of one identity by two sources are one event."""
CLOSE_WAIT_S = 0.5
"""Longest wait for a stuck source at the end."""

Source = TypeVar("Source", NvmlSource, KernelLogSource)


class HardwareWatch:
    """A daemon thread that polls sources, and a queue of their reports.

    Nothing here waits for a source but that thread: :meth:`drain` returns at once, and :meth:`close` gives a stuck
    source half a second. A source that fails is taken out with one warning. A process that was forked from this one
    sees an empty watch: the thread stayed behind.

    Parameters
    ----------
    sources
        What is polled; the watch closes them.
    interval_s
        Seconds between polls; the first is made at once. ``None``: no thread, only :meth:`poll_once`.
    notes
        Warnings that are there from the start.
    clock
        Seconds, never going back.
    """

    def __init__(
        self,
        sources: Sequence[HardwareSource],
        interval_s: float | None = 5.0,
        *,
        notes: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if interval_s is not None and not interval_s > 0.0:
            raise ValueError(f"interval_s must be above 0, not {interval_s}")
        self._sources = list(sources)
        # A deque's append and popleft need no lock, so that a fork cannot leave one behind locked.
        self._reports: deque[HardwareReport] = deque(maxlen=QUEUE_LENGTH)
        self._notes: deque[str] = deque(notes, maxlen=NOTES_LENGTH)
        self._seen: dict[str, tuple[HardwareSource, float]] = {}
        self._same_event_s = SAME_EVENT_S + (interval_s or 0.0)
        self._overflowed = False
        self._clock = clock
        self._polling = threading.Lock()
        self._process = os.getpid()
        self._stop = threading.Event()
        self._thread = self._start(interval_s) if interval_s is not None and self._sources else None
        # Also runs at exit, and when a watch that nobody closed is dropped.
        self._finish = weakref.finalize(self, _finish, self._stop, self._thread, self._sources, self._process)

    @classmethod
    def automatic(
        cls,
        *,
        worker: int = 0,
        kernel_log: str | None = "/dev/kmsg",
        interval_s: float | None = 5.0,
        library: Any = None,
    ) -> HardwareWatch:
        """Watch whatever this machine has, with one warning that names what it has not.

        ``worker`` and ``library`` are as for :class:`NvmlSource`. ``kernel_log`` may be ``None``, on all but one worker
        of a host.
        """
        missing: list[str] = []
        nvml = _try(lambda: NvmlSource(library, worker=worker), missing)
        gpus = nvml.workers or None if nvml is not None else None
        log = _try(lambda: KernelLogSource(kernel_log, worker=worker, gpus=gpus), missing) if kernel_log else None
        sources: list[HardwareSource] = [source for source in (nvml, log) if source is not None]
        notes = [f"{'; '.join(missing)}; {_counts(sources)}"] if missing else []
        return cls(sources, interval_s, notes=notes)

    def drain(self) -> list[HardwareReport]:
        """Reports since the last call, oldest first. Never waits."""
        return self._take(self._reports)

    def notes(self) -> list[str]:
        """Warnings since the last call. Never waits."""
        return self._take(self._notes)

    def readings(self) -> dict[int, dict[str, float]]:
        """Worker → readings of its GPU at the last poll; empty without a GPU. Never waits."""
        for source in [*self._sources]:
            if isinstance(source, NvmlSource):
                return source.readings()
        return {}

    def poll_once(self) -> bool:
        """Poll every source now, as the thread does; return whether one is left to be polled again."""
        if os.getpid() != self._process:
            return False
        with self._polling:
            for source in [*self._sources]:
                try:
                    self._keep(source, source.poll())
                except HardwareUnavailable as error:
                    self._take_out(source, str(error))
                except Exception as error:  # noqa: BLE001 - whatever a driver does, training goes on
                    self._take_out(source, f"{source.name} failed: {on_one_line(error)}")
            return bool(self._sources)

    def close(self) -> None:
        """Stop the thread and close the sources; returns within half a second even if one of them is stuck."""
        self._finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, interval_s: float) -> threading.Thread:
        thread = threading.Thread(
            target=_poll_until_stopped,
            args=(weakref.ref(self), self._stop, interval_s, self._sources),
            name="rmetric-hardware",
            daemon=True,
        )
        thread.start()
        return thread

    def _keep(self, source: HardwareSource, reports: Iterable[HardwareReport]) -> None:
        now_s = self._clock()
        self._seen = {identity: seen for identity, seen in self._seen.items() if now_s - seen[1] <= self._same_event_s}
        for report in reports:
            if report.identity:
                if self._seen.get(report.identity, (source, now_s))[0] is not source:
                    continue
                self._seen[report.identity] = (source, now_s)
            self._note_overflow()
            self._reports.append(report)

    def _note_overflow(self) -> None:
        if not self._overflowed and len(self._reports) == QUEUE_LENGTH:
            self._overflowed = True
            self._notes.append(f"more than {QUEUE_LENGTH} hardware reports wait to be fetched; the oldest are dropped")

    def _take_out(self, source: HardwareSource, reason: str) -> None:
        self._sources.remove(source)
        self._notes.append(f"{reason}; {_counts(self._sources)}")
        _close_all([source])

    def _take(self, queue: deque[Any]) -> list[Any]:
        if os.getpid() != self._process:
            return []
        return [queue.popleft() for _ in range(len(queue))]


def own_watch(asked: HardwareWatch | bool | None, *, on_gpu: bool) -> HardwareWatch | None:
    """The watch that a monitor makes for itself; ``None``: the user brings one, or wants none.

    What the machine has not is told to who asked for it (``True``), or trains on a GPU.
    """
    if asked is not None and asked is not True:
        return None
    watch = HardwareWatch.automatic()
    if asked is None and not on_gpu:
        watch.notes()
    return watch


def _try(make: Callable[[], Source], missing: list[str]) -> Source | None:
    """Make a source, or return ``None`` and put the reason into ``missing``."""
    try:
        return make()
    except HardwareUnavailable as error:
        missing.append(str(error))
    except Exception as error:  # noqa: BLE001 - whatever a driver does, training goes on
        missing.append(on_one_line(error))
    return None


def _counts(sources: Sequence[HardwareSource]) -> str:
    names = [source.name for source in sources]
    return f"λ counts {', '.join(names)} and slow steps" if names else "λ counts slow steps only"


def _poll_until_stopped(
    watch: weakref.ref[HardwareWatch], stop: threading.Event, interval_s: float, sources: list[HardwareSource]
) -> None:
    """Run the thread. It holds the watch only while it polls, so that a watch that nobody closed is collected."""
    while not stop.is_set():
        held = watch()
        if held is None or not held.poll_once():
            break
        del held
        stop.wait(interval_s)
    _close_all(sources)


def _finish(
    stop: threading.Event, thread: threading.Thread | None, sources: list[HardwareSource], process: int
) -> None:
    stop.set()
    if os.getpid() != process:
        return
    if thread is None:
        _close_all(sources)
    elif thread is not threading.current_thread():
        thread.join(CLOSE_WAIT_S)


def _close_all(sources: Sequence[HardwareSource]) -> None:
    for source in sources:
        try:
            source.close()
        except Exception:  # noqa: BLE001 - nothing is lost with a source that does not close
            continue
