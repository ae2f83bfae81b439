"""Hardware reports: the contract of a source, and the Xid codes of the NVIDIA driver that mean hardware.

**Source:** NVIDIA, *Xid Errors*, the Xid catalogue (docs.nvidia.com/deploy/xid-errors, read November 2026). A number is
``fatal`` here where the catalogue asks for a reset of the GPU or a restart of the machine, or where the process that
used the GPU is ended because of its hardware (94); ``correctable`` where training may go on.

**Deviation:** every other number is left out. Those are errors of the application or of the driver (13, 31, 32, 43, 69
and the copy and video engines), consequences that come with another Xid (45, 154, 171, 172), or unknown: an application
error counted as hardware would make λ speak of bugs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from rmetric.components import (
    BUS,
    CPU,
    FAULTY_GPU,
    GPU_MEMORY,
    GPU_PROCESSOR,
    GPU_SRAM,
    GPU_THERMAL,
    LINK,
    NIC,
    POWER,
    SLOW_WORKER,
    SSD,
    STALL,
    STRAGGLER,
    SYSTEM_MEMORY,
)

Kind = Literal["correctable", "fatal"]

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
    SLOW_WORKER,
)
"""Components that are reported. All but the last three are named as in the simulator's table of interruptions; there
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
    worker: int | None
    """The worker that it hit; ``None``: not known. For an event of the whole host: the worker that watches the host."""
    details: str = ""
    """Counters and kernel messages for the log, never a path or a host name of our own."""
    identity: str = ""
    """Name that every source gives to the same event; empty if only one source can see it."""
    phase: str = ""
    """Phase of the training step in which a worker is slow; empty: not about that."""
    lasting: bool = False
    """True for a worker whose steps have become slow, and not a single one of them."""


class HardwareSource(Protocol):
    """Something that can be asked for new hardware reports."""

    @property
    def name(self) -> str:
        """Name of the source in a message."""

    def poll(self) -> list[HardwareReport]:
        """Reports since the last poll, in bounded time; :class:`HardwareUnavailable` if there will be no more."""

    def close(self) -> None:
        """Give back what the source holds. May be called twice."""


def merged(reports: Iterable[HardwareReport]) -> list[HardwareReport]:
    """Merge reports of one component, kind, worker and identity: what one poll sees of one event is one event.

    A memory error shows in two counters and a machine check in four lines; a storm of them must not fill a queue.

    >>> two = [HardwareReport("SSD", "correctable", 0, "I/O error"), HardwareReport("SSD", "correctable", 0, "timeout")]
    >>> [report.details for report in merged(two)]
    ['I/O error (and 1 more)']
    """
    first: dict[tuple[str, str, int | None, str], HardwareReport] = {}
    others: dict[tuple[str, str, int | None, str], int] = {}
    for report in reports:
        key = (report.component, report.kind, report.worker, report.identity)
        if first.setdefault(key, report) is not report:
            others[key] = others.get(key, 0) + 1
    return [
        replace(report, details=f"{report.details} (and {others[key]} more)") if key in others else report
        for key, report in first.items()
    ]


LOST = 79
"""Xid of a GPU that has fallen off the bus."""

XIDS: dict[int, tuple[str, Kind, str]] = {
    46: (FAULTY_GPU, "fatal", "GPU stopped processing"),
    48: (GPU_MEMORY, "fatal", "double-bit ECC error"),
    54: (POWER, "fatal", "auxiliary power is not connected"),
    61: (GPU_PROCESSOR, "correctable", "internal micro-controller warning"),
    62: (GPU_PROCESSOR, "fatal", "internal micro-controller halt"),
    63: (GPU_MEMORY, "correctable", "row remapped or page retired"),
    64: (GPU_MEMORY, "fatal", "row remapping or page retirement failed"),
    74: (LINK, "fatal", "NVLink error"),
    LOST: (FAULTY_GPU, "fatal", "GPU has fallen off the bus"),
    92: (GPU_MEMORY, "correctable", "high rate of single-bit ECC errors"),
    94: (GPU_MEMORY, "fatal", "contained memory error"),
    95: (GPU_MEMORY, "fatal", "uncontained memory error"),
    109: (FAULTY_GPU, "fatal", "context switch timed out"),
    110: (FAULTY_GPU, "fatal", "security fault"),
    119: (GPU_PROCESSOR, "fatal", "GPU system processor timed out"),
    120: (GPU_PROCESSOR, "fatal", "GPU system processor error"),
    121: (LINK, "correctable", "chip-to-chip link error"),
    136: (LINK, "fatal", "NVLink training failed"),
    140: (GPU_MEMORY, "fatal", "unrecovered ECC error"),
    143: (FAULTY_GPU, "fatal", "GPU initialisation error"),
    144: (LINK, "correctable", "NVLink error (SAW)"),
    145: (LINK, "correctable", "NVLink error (RLW)"),
    146: (LINK, "correctable", "NVLink error (TLW)"),
    147: (LINK, "correctable", "NVLink error (TREX)"),
    148: (LINK, "correctable", "NVLink error (NVLPW_CTRL)"),
    149: (LINK, "correctable", "NVLink error (NETIR)"),
    150: (LINK, "correctable", "NVLink error (MSE)"),
    155: (LINK, "fatal", "NVLink error defined by software"),
    156: (FAULTY_GPU, "fatal", "resource retired, reset needed"),
    157: (FAULTY_GPU, "correctable", "resource retirement failed"),
    158: (FAULTY_GPU, "fatal", "GPU fatal timeout"),
    160: (GPU_MEMORY, "correctable", "memory channel retired"),
    161: (GPU_MEMORY, "correctable", "memory channel retirement failed"),
    167: (BUS, "fatal", "PCIe fatal timeout"),
    169: (GPU_PROCESSOR, "fatal", "internal micro-controller halt"),
}
"""Number → component, kind, meaning. NVLink 5 errors (144-150) may also be fatal; a fatal one brings another Xid."""

_PCI = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})", re.IGNORECASE)


def pci_address(text: str) -> str:
    """Extract a PCI address without its function, so that NVML's and the kernel's compare; empty if there is none.

    >>> pci_address("00000000:65:00.0"), pci_address("PCI:0000:65:00")
    ('0000:65:00', '0000:65:00')
    """
    found = _PCI.search(text)
    if found is None:
        return ""
    domain, bus, device = (int(part, 16) for part in found.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}"


def xid_report(number: object, worker: int, pci: str, note: str = "") -> HardwareReport | None:
    """Make the report of an Xid of the GPU at ``pci``; ``None`` if the number does not mean hardware."""
    if not isinstance(number, int) or number not in XIDS:
        return None
    component, kind, meaning = XIDS[number]
    where = f" on GPU {pci}" if pci else ""
    details = f"Xid {number}{where}: {note or meaning}"
    # A GPU that NVML cannot reach any longer and Xid 79 are one event, whoever says it first.
    event = "lost" if number == LOST else f"Xid {number}"
    return HardwareReport(component, kind, worker, details, identity=f"{event} {pci}" if pci else "")
