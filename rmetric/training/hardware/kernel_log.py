"""Hardware reports from the kernel log, followed from now on."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from rmetric.training.hardware.base import HardwareReport, HardwareUnavailable, merged
from rmetric.training.hardware.kernel_messages import recognise

READ_BYTES = 8192
"""One read: /dev/kmsg gives one record a read, and refuses a buffer that is too small for it."""
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
        """Close the log."""
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
        """What is new; nothing at the end; ``None`` where the kernel has overwritten messages before they were read."""
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
    r"""The kernel's message in a line of a log file or a record of /dev/kmsg; empty if a program wrote it.

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
