"""Time parts of a step on the host, or on an accelerator without waiting for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch


class Stopwatch(Protocol):
    """Marks moments, and measures later what lies between them."""

    lag: int
    """Steps after which a step's marks are measured: 0, at once."""

    def mark(self) -> Any:
        """Mark this moment. Never waits."""

    def seconds(self, begin: Any, end: Any) -> float:
        """Seconds between two moments; NaN if they are not over yet. Never waits."""


class HostStopwatch:
    """The time of this process.

    Parameters
    ----------
    now
        The time, seconds.
    """

    lag = 0

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now

    def mark(self) -> float:
        return self._now()

    def seconds(self, begin: float, end: float) -> float:
        return end - begin


class DeviceStopwatch:
    """Events on the stream that computes: the device's own time, whatever the host has queued ahead of it.

    A host may be a step ahead of its device; two steps later, as a rule, the events are over.
    """

    lag = 2

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def seconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return begin.elapsed_time(end) / 1000.0 if end.query() else math.nan
