"""Kernel messages that speak of failing hardware.

**Source:** the formats are those of the Linux drivers' own print statements (EDAC, machine check, AER, libata, NVMe,
network drivers) and of the NVIDIA driver's NVRM lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rmetric.training.hardware.base import (
    BUS,
    CPU,
    LINK,
    NIC,
    SSD,
    SYSTEM_MEMORY,
    HardwareReport,
    Kind,
)
from rmetric.training.hardware.xid import LOST, pci_address, xid_report

DETAILS_LENGTH = 200
MESSAGE_LENGTH = 2_000
"""No more of a message is looked at: the kernel's own are shorter, and the time to search one stays bounded."""

_XID = re.compile(r"NVRM: Xid \(([^)]*)\): (\d+)\b[, ]*(.*)")
_OFF_THE_BUS = re.compile(r"NVRM: .*fallen off the bus", re.DOTALL)

_NOT_OURS = re.compile(
    r"SATA link down|\b(?:veth|docker|br-|virbr|cali|tap)\w*: .*[Ll]ink|dev (?:loop|sr|fd|zram|ram)\d"
)
"""Alike, but no failure: an empty SATA port, a network of containers, a drive that is not a disk."""


@dataclass(frozen=True)
class Rule:
    """Messages that match ``pattern`` mean an event of ``component``."""

    component: str
    kind: Kind
    pattern: re.Pattern[str]


def _rule(component: str, kind: Kind, pattern: str) -> Rule:
    return Rule(component, kind, re.compile(pattern))


RULES = (
    # An NVSwitch says of itself whether the error was fatal.
    _rule(LINK, "correctable", r"SXid \(.*\): \d+, (?:Non-fatal|Informational)"),
    _rule(LINK, "fatal", r"SXid \(.*\): \d+, Fatal"),
    _rule(LINK, "correctable", r"(?:NVRM|nvidia[\w-]*): .*(?i:nvlink).*(?i:error|fail|down|recover)"),
    # Bit 61 of a machine-check bank's status: the error was not corrected.
    _rule(CPU, "fatal", r"Machine Check(?: Exception)?: \d+ Bank \d+: [2367abef][0-9a-f]{15}\b"),
    _rule(CPU, "fatal", r"Machine Check Exception|[Ff]atal (?:local )?machine check"),
    _rule(SYSTEM_MEMORY, "fatal", r"EDAC (?:\S+ )?MC\d+: (?:\d+ )?UE\b|Memory failure: 0x[0-9a-f]+"),
    _rule(
        SYSTEM_MEMORY, "correctable", r"EDAC (?:\S+ )?MC\d+: (?:\d+ )?CE\b|\[Hardware Error\]:.*section_type: memory"
    ),
    _rule(BUS, "correctable", r"\[Hardware Error\]:.*section_type: PCIe"),
    _rule(CPU, "fatal", r"\[Hardware Error\]: (?:Uncorrected|event severity: fatal)"),
    _rule(
        CPU,
        "correctable",
        r"\[Hardware Error\]: (?:Corrected|Deferred|.*section_type: .*processor|Machine check events logged)"
        r"|Machine Check: \d+ Bank \d+: [0-9a-f]{16}\b",
    ),
    _rule(BUS, "fatal", r"AER: .*\(Fatal\)|PCIe Bus Error: severity=.*\(Fatal\)|pciehp: .*Link Down"),
    _rule(BUS, "correctable", r"AER: (?:Multiple )?(?:Corrected|Correctable|Uncorrect\w+)|PCIe Bus Error: severity="),
    _rule(CPU, "fatal", r"critical temperature reached"),
    _rule(CPU, "correctable", r"temperature above threshold"),
    # Whoever reads this has survived: a helper process or a neighbour was killed.
    _rule(SYSTEM_MEMORY, "correctable", r"[Oo]ut of memory: Killed process|invoked oom-killer|^oom-kill:"),
    _rule(SSD, "fatal", r"Remounting filesystem read-only|nvme\d*: (?:Disabling device|Removing after)"),
    _rule(
        SSD,
        "correctable",
        r"I/O error,? (?:on )?dev(?:ice)? |critical medium error|EXT4-fs error|XFS \(\S+\): .*(?:I/O error|orruption)"
        r"|nvme\d*: I/O .*timeout|\bata\d+(?:\.\d+)?: (?:failed command|exception Emask)",
    ),
    _rule(
        NIC,
        "correctable",
        r"\b[Ll]ink (?:is )?(?:[Dd]own|DOWN)\b|link status definitely down|NETDEV WATCHDOG: .*timed out",
    ),
)
"""Tried from the top; the first that matches decides."""


def recognise(message: str, worker: int, gpus: Mapping[str, int] | None = None) -> HardwareReport | None:
    """The report of one kernel message, or ``None`` if it does not speak of failing hardware.

    Parameters
    ----------
    message
        The text of one message.
    worker
        The worker that watches this host; events of the host are its own.
    gpus
        PCI address → worker, of the GPUs that are watched. Events of other GPUs on the host are not ours. ``None``: all
        are.

    >>> recognise("NVRM: Xid (PCI:0000:65:00): 63, Row Remapper: New row marked for remapping", 0).component
    'GPU HBM3 memory'
    """
    message = message[:MESSAGE_LENGTH]
    found = _XID.search(message)
    if found is not None:
        return _xid(int(found[2]), found[1], found[3], worker, gpus)
    if _OFF_THE_BUS.search(message):
        return _xid(LOST, message, "", worker, gpus)
    if _NOT_OURS.search(message):
        return None
    for rule in RULES:
        if rule.pattern.search(message):
            return HardwareReport(rule.component, rule.kind, worker, message.strip()[:DETAILS_LENGTH])
    return None


def _xid(number: int, where: str, note: str, worker: int, gpus: Mapping[str, int] | None) -> HardwareReport | None:
    pci = pci_address(where)
    if gpus and pci and pci not in gpus:
        return None
    if gpus:
        worker = gpus.get(pci, worker)
    return xid_report(number, worker, pci, note.strip()[:DETAILS_LENGTH])
