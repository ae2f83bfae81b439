"""What a source of hardware reports is, and what it reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

Kind = Literal["correctable", "fatal"]

FAULTY_GPU = "Faulty GPU"
GPU_MEMORY = "GPU HBM3 memory"
GPU_SRAM = "GPU SRAM memory"
GPU_PROCESSOR = "GPU system processor"
GPU_THERMAL = "GPU thermal interface + sensor"
LINK = "Network switch / cable"
NIC = "NIC"
BUS = "IO expansion board"
POWER = "Power supply"
CPU = "CPU"
SYSTEM_MEMORY = "System memory"
SSD = "SSD"
STRAGGLER = "straggler"
STALL = "stall"
SLOW_STEPS = (STRAGGLER, STALL)
"""Components of the reports that step times alone give; nothing in the hardware said so."""

COMPONENTS = (
    FAULTY_GPU,
    GPU_MEMORY,
    GPU_SRAM,
    GPU_PROCESSOR,
    GPU_THERMAL,
    LINK,
    NIC,
    BUS,
    POWER,
    CPU,
    SYSTEM_MEMORY,
    SSD,
    STRAGGLER,
    STALL,
)
"""Components that are reported. All but the last two are named as in the simulator's table of interruptions; there
``GPU HBM3 memory`` stands for the memory of any GPU."""


class HardwareUnavailable(Exception):  # noqa: N818 - a state of the machine, not an error of the user
    """A source cannot be watched here, or not any longer. The message is the reason in a few words."""


@dataclass(frozen=True)
class HardwareReport:
    """One hardware event, seen on this machine."""

    component: str
    """One of :data:`COMPONENTS`."""
    kind: str
    """``correctable``: the worker goes on. ``fatal``: it is lost, or what it computes cannot be trusted."""
    worker: int
    """The worker that it hit. For an event of the whole host: the worker that watches the host."""
    details: str = ""
    """What was seen, for the log: counters and kernel messages, never a path or a host name of our own."""
    identity: str = ""
    """What one event is called by every source that sees it; empty if only one can."""


class HardwareSource(Protocol):
    """Something that can be asked for new hardware reports."""

    @property
    def name(self) -> str:
        """What the source is, in a message."""

    def poll(self) -> list[HardwareReport]:
        """Reports since the last poll, in bounded time; :class:`HardwareUnavailable` if there will be no more."""

    def close(self) -> None:
        """Give back what the source holds. May be called twice."""


def merged(reports: Iterable[HardwareReport]) -> list[HardwareReport]:
    """One report for all of one component, kind, worker and identity: what one poll sees of one event is one event.

    A memory error shows in two counters and a machine check in four lines; a storm of them must not fill a queue.

    >>> two = [HardwareReport("SSD", "correctable", 0, "I/O error"), HardwareReport("SSD", "correctable", 0, "timeout")]
    >>> [report.details for report in merged(two)]
    ['I/O error (and 1 more)']
    """
    first: dict[tuple[str, str, int, str], HardwareReport] = {}
    others: dict[tuple[str, str, int, str], int] = {}
    for report in reports:
        key = (report.component, report.kind, report.worker, report.identity)
        if first.setdefault(key, report) is not report:
            others[key] = others.get(key, 0) + 1
    return [
        replace(report, details=f"{report.details} (and {others[key]} more)") if key in others else report
        for key, report in first.items()
    ]
