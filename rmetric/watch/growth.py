"""Whether a file has grown, was cut short or replaced, or is not there; one ``stat`` if nothing happened."""

from __future__ import annotations

import time
from enum import Enum
from pathlib import Path

HEAD_BYTES = 256
"""Bytes at the start of a file by which one that was cut and written anew is told from one that was continued."""


class Change(Enum):
    """What happened to a file since the last look."""

    NONE = "none"
    GREW = "grew"
    """It is longer, or was rewritten in place with the same start."""
    ANEW = "anew"
    """Another file stands there, or the same one was cut; also the first time it is seen."""
    ABSENT = "absent"


class Growth:
    """Watches one path."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._identity: tuple[int, int] | None = None
        self._size = 0
        self._head = b""
        self.age_s = 0.0
        """Seconds between the latest change of the file and the look that saw it, by the clock on the wall."""

    def look(self) -> Change:
        """What happened since the last look."""
        try:
            found = self._path.stat()
        except OSError:
            return Change.ABSENT
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
        if stamp == self._stamp:
            return Change.NONE
        try:
            with open(self._path, "rb") as file:
                head = file.read(HEAD_BYTES)
        except OSError:
            return Change.ABSENT
        identity = (found.st_dev, found.st_ino)
        continued = identity == self._identity and found.st_size >= self._size and head.startswith(self._head)
        self._stamp, self._identity, self._size, self._head = stamp, identity, found.st_size, head
        self.age_s = max(0.0, time.time() - found.st_mtime)
        return Change.GREW if continued else Change.ANEW
