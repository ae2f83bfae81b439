"""One process at a time in the folder of a study: two would remove each other's files and mix two studies."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from rmetric.errors import UserError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep a folder for this process to the end of the block; the system frees that of a process which is killed.

    Where files cannot be locked, as on Windows and on some network file systems, nothing is kept.

    Raises
    ------
    UserError
        If another process is at work there.
    """
    if fcntl is None:
        yield
        return
    with _locked(folder) as file:
        holder = f"process {os.getpid()} on {platform.node()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC\n"
        with suppress(OSError):  # only the message of others lacks it
            file.truncate(0)
            file.write(holder.encode())
        try:
            yield
        finally:
            with suppress(OSError):
                (folder / LOCK).unlink()


def _locked(folder: Path) -> IO[bytes]:
    path = folder / LOCK
    while True:
        try:
            file: IO[bytes] = open(path, "a+b", buffering=0)  # noqa: SIM115 - it is locked until the caller closes it
        except PermissionError:  # another user's process was killed
            file = open(path, "rb")  # noqa: SIM115
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except BlockingIOError:
            file.seek(0)
            holder = file.read(200).decode(errors="replace").strip()
            file.close()
            raise UserError(f"another process is at work on {folder} ({holder or 'it says no more'})") from None
        except FileNotFoundError:  # its holder has just removed it
            pass
        except OSError:  # this file system locks nothing
            return file
        file.close()
