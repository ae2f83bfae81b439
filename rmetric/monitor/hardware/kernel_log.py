"""Follow the kernel log and report the messages that mean failing hardware.

**Source:** the formats are those of the Linux drivers' own print statements (EDAC, machine check, AER, libata, NVMe,
network drivers) and of the NVIDIA driver's NVRM lines.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from rmetric.components import BUS, CPU, LINK, NIC, SSD, SYSTEM_MEMORY
from rmetric.monitor.hardware.reports import (
    LOST,
    HardwareReport,
    HardwareUnavailable,
    Kind,
    merged,
    pci_address,
    xid_report,
)

DETAILS_LENGTH = 200
MESSAGE_LENGTH = 2_000
"""Most characters of a message that are searched: the kernel's own are shorter, and the time stays bounded."""

_XID = re.compile(r"NVRM: Xid \(([^)]*)\): (\d+)\b[, ]*(.*)")
_OFF_THE_BUS = re.compile(r"NVRM: .*fallen off the bus", re.DOTALL)

_NO_FAILURE = re.compile(
    r"SATA link down|\b(?:veth|docker|br-|virbr|cali|tap)\w*: .*[Ll]ink|dev (?:loop|sr|fd|zram|ram)\d"
)
"""Messages that are no failure: an empty SATA port, a network of containers, a drive that is not a disk."""


RULES: tuple[tuple[str, Kind, str], ...] = (
    # An NVSwitch says of itself whether the error was fatal.
    (LINK, "correctable", r"SXid \(.*\): \d+, (?:Non-fatal|Informational)"),
    (LINK, "fatal", r"SXid \(.*\): \d+, Fatal"),
    (LINK, "correctable", r"(?:NVRM|nvidia[\w-]*): .*(?i:nvlink).*(?i:error|fail|down|recover)"),
    # Bit 61 of a machine-check bank's status: the error was not corrected.
    (CPU, "fatal", r"Machine Check(?: Exception)?: \d+ Bank \d+: [2367abef][0-9a-f]{15}\b"),
    (CPU, "fatal", r"Machine Check Exception|[Ff]atal (?:local )?machine check"),
    (SYSTEM_MEMORY, "fatal", r"EDAC (?:\S+ )?MC\d+: (?:\d+ )?UE\b|Memory failure: 0x[0-9a-f]+"),
    (SYSTEM_MEMORY, "correctable", r"EDAC (?:\S+ )?MC\d+: (?:\d+ )?CE\b|\[Hardware Error\]:.*section_type: memory"),
    (BUS, "correctable", r"\[Hardware Error\]:.*section_type: PCIe"),
    (CPU, "fatal", r"\[Hardware Error\]: (?:Uncorrected|event severity: fatal)"),
    (
        CPU,
        "correctable",
        r"\[Hardware Error\]: (?:Corrected|Deferred|.*section_type: .*processor|Machine check events logged)"
        r"|Machine Check: \d+ Bank \d+: [0-9a-f]{16}\b",
    ),
    (BUS, "fatal", r"AER: .*\(Fatal\)|PCIe Bus Error: severity=.*\(Fatal\)|pciehp: .*Link Down"),
    (BUS, "correctable", r"AER: (?:Multiple )?(?:Corrected|Correctable|Uncorrect\w+)|PCIe Bus Error: severity="),
    (CPU, "fatal", r"critical temperature reached"),
    (CPU, "correctable", r"temperature above threshold"),
    # Whoever reads this has survived: a helper process or a neighbour was killed.
    (SYSTEM_MEMORY, "correctable", r"[Oo]ut of memory: Killed process|invoked oom-killer|^oom-kill:"),
    (SSD, "fatal", r"Remounting filesystem read-only|nvme\d*: (?:Disabling device|Removing after)"),
    (
        SSD,
        "correctable",
        r"I/O error,? (?:on )?dev(?:ice)? |critical medium error|EXT4-fs error|XFS \(\S+\): .*(?:I/O error|orruption)"
        r"|nvme\d*: I/O .*timeout|\bata\d+(?:\.\d+)?: (?:failed command|exception Emask)",
    ),
    (
        NIC,
        "correctable",
        r"\b[Ll]ink (?:is )?(?:[Dd]own|DOWN)\b|link status definitely down|NETDEV WATCHDOG: .*timed out",
    ),
)
"""Component, kind and pattern, in the order in which they are tried; the first that matches decides."""


def recognise(message: str, worker: int, gpus: Mapping[str, int] | None = None) -> HardwareReport | None:
    """Make the report of one kernel message; ``None`` if it does not mean failing hardware.

    Events of the host are those of the ``worker`` that watches it. ``gpus``: PCI address → worker of the GPUs that are
    watched; events of other GPUs on the host are not ours. ``None``: all are.

    >>> recognise("NVRM: Xid (PCI:0000:65:00): 63, Row Remapper: New row marked for remapping", 0).component
    'GPU HBM3 memory'
    """
    message = message[:MESSAGE_LENGTH]
    found = _XID.search(message)
    if found is not None:
        return _xid(int(found[2]), found[1], found[3], worker, gpus)
    if _OFF_THE_BUS.search(message):
        return _xid(LOST, message, "", worker, gpus)
    if _NO_FAILURE.search(message):
        return None
    for component, kind, pattern in RULES:
        if re.search(pattern, message):
            return HardwareReport(component, kind, worker, message.strip()[:DETAILS_LENGTH])
    return None


def _xid(number: int, where: str, note: str, worker: int, gpus: Mapping[str, int] | None) -> HardwareReport | None:
    pci = pci_address(where)
    if gpus and pci and pci not in gpus:
        return None
    if gpus:
        worker = gpus.get(pci, worker)
    return xid_report(number, worker, pci, note.strip()[:DETAILS_LENGTH])


READ_BYTES = 8192
"""Size of a read: /dev/kmsg gives one record a read, and refuses a buffer that is too small for it."""
READS_PER_POLL = 512
LONGEST_LINE = 65_536

_RECORD = re.compile(r"(\d+),\d+,\d+,[^;]*;(.*)")
"""A record of /dev/kmsg: priority, sequence number, time and flags; then the text."""
_KERNEL_PRIORITIES = 8
"""A priority below it is the kernel's own; programs write to /dev/kmsg as well."""


class KernelLogSource:
    """Follows ``/dev/kmsg``, or a file that grows such as ``kern.log``.

    What is in the log already is history and is skipped. A poll never waits, and reads at most 4 MiB; the rest is read
    at the next poll. A file that was rotated or emptied is followed on.

    Parameters
    ----------
    path
        The log.
    worker
        The worker that events of this host are counted for. Several workers on one host: let one of them watch it.
    gpus
        PCI address → worker of the GPUs that are watched, if only their Xids are ours.

    Raises
    ------
    HardwareUnavailable
        If the log cannot be read; mostly it takes the rights of an administrator.
    """

    name = "the kernel log"

    def __init__(self, path: str = "/dev/kmsg", *, worker: int = 0, gpus: Mapping[str, int] | None = None) -> None:
        self._path = path
        self._worker = worker
        self._gpus = gpus
        self._rest = b""
        self._file = -1
        self._open()
        os.lseek(self._file, 0, os.SEEK_END)

    def poll(self) -> list[HardwareReport]:
        """Reports of the messages since the last poll; several of one component are one report."""
        if self._file < 0:
            raise HardwareUnavailable("the kernel log is closed")
        reports = (recognise(message, self._worker, self._gpus) for message in self._messages())
        return merged(report for report in reports if report is not None)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        # Without O_NONBLOCK a read of /dev/kmsg waits for the next message.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            self._file = os.open(self._path, flags)
            mode = os.fstat(self._file).st_mode
        except OSError as error:
            raise HardwareUnavailable(f"the kernel log cannot be read ({error.strerror})") from None
        self._grows = stat.S_ISREG(mode)
        if not self._grows and not stat.S_ISCHR(mode):
            self.close()
            raise HardwareUnavailable("the kernel log cannot be read (neither a device nor a file)")

    def _messages(self) -> Iterator[str]:
        if self._grows:
            self._start_again_if_emptied()
        for _ in range(READS_PER_POLL):
            chunk = self._read()
            if chunk is None:
                continue
            if not chunk:
                if not (self._grows and self._was_rotated()):
                    return
                self._follow_the_new_file()
                continue
            yield from self._lines(chunk)

    def _follow_the_new_file(self) -> None:
        self.close()
        self._rest = b""
        self._open()

    def _read(self) -> bytes | None:
        """Read the next bytes, none at the end; ``None`` where the kernel has overwritten unread messages."""
        try:
            return os.read(self._file, READ_BYTES)
        except BlockingIOError:
            return b""
        except BrokenPipeError:
            return None
        except OSError as error:
            raise HardwareUnavailable(f"the kernel log cannot be read any longer ({error.strerror})") from None

    def _lines(self, chunk: bytes) -> Iterator[str]:
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest if len(rest) <= LONGEST_LINE else b""
        for line in lines:
            message = message_of(line.decode("utf-8", errors="replace"))
            if message:
                yield message

    def _start_again_if_emptied(self) -> None:
        if os.fstat(self._file).st_size < os.lseek(self._file, 0, os.SEEK_CUR):
            os.lseek(self._file, 0, os.SEEK_SET)
            self._rest = b""

    def _was_rotated(self) -> bool:
        try:
            return not os.path.samestat(Path(self._path).stat(), os.fstat(self._file))
        except FileNotFoundError:  # between the renaming and the new file
            return False
        except OSError as error:
            raise HardwareUnavailable(f"the kernel log cannot be read any longer ({error.strerror})") from None


def message_of(line: str) -> str:
    r"""Extract the kernel's message from a line of a log file or a record of /dev/kmsg; empty if a program wrote it.

    >>> message_of("3,812,17093912,-;EDAC MC0: 1 CE memory read error")
    'EDAC MC0: 1 CE memory read error'
    >>> message_of(" DEVICE=+pci:0000:65:00.0")
    ''
    """
    record = _RECORD.match(line)
    if record is None:
        return "" if line.startswith(" ") else line
    if int(record[1]) >= _KERNEL_PRIORITIES:
        return ""
    return record[2].replace("\\x0a", " ")
