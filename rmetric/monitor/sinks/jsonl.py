"""Write the log to disk: one JSON object a line, each written whole at once."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from rmetric.errors import LOGGER, UserError
from rmetric.files import written_aside
from rmetric.log_writer import encode_event
from rmetric.monitor.sinks.base import Sink
from rmetric.records import START, TERMINAL_EVENTS, VALIDATION, step_of

COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
"""Endings that promise what no log is."""


class JsonlSink(Sink):
    """Writes the project's own log; see :mod:`rmetric.log_writer`.

    Nothing is buffered: an event is one ``write`` of one whole line, so whatever kills the process, no event that was
    handed over is lost. SIGKILL in the very moment of a write may cut the last line, where it crosses a page of memory:
    a reader says so, and a run that is resumed drops it. On a full disk a line that went in only partly is taken away
    again.

    An existing log is never overwritten: a new run takes the next free name (``run-2.jsonl``), with one warning. A
    resumed run goes on with its own file: what belongs to later steps is dropped, as is the end, and the rest is kept
    byte for byte.

    Parameters
    ----------
    path
        The file; its folder is made at :meth:`start` if there is none. A relative path is that of the folder in which
        the program is now, wherever it goes later on. Messages have the path as it was given.

    Raises
    ------
    UserError
        The path is a folder or no name of a file, lies beneath something that is no folder, is a link to nothing, or
        has the ending of a compressed file.
    """

    noun = "the log"
    named = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        """The file that is written; after :meth:`start`, with the name that was free."""
        self._asked = Path(path)
        self._descriptor: int | None = None
        self._size = 0
        self._begun, self._has_own = False, True
        self.harm = ""
        """What somebody else has done to the file while it was written, such as ``was deleted``; empty: nothing."""
        with self._refusing():
            self._check_place()

    def _check_place(self) -> None:
        if self.path.is_dir():
            raise UserError(f"{self._asked} is a folder; name a file for the log")
        if self.path.suffix.casefold() in COMPRESSED:
            raise UserError(f"the log {self} is written as plain text; name it {self.path.stem}, compress it later")
        for place in (self._asked, *self._asked.parents):
            if place.is_symlink() and not place.exists():
                raise UserError(f"{place} is a link to nothing; remove it, or choose another place for the log {self}")
            if place != self._asked and place.exists() and not place.is_dir():
                raise UserError(f"{place} is not a folder; the log {self} cannot be made in it")
        with suppress(FileNotFoundError):
            self.path.lstat()

    def check_writable(self) -> None:
        """Raise :class:`UserError` if the file cannot be made or written here; leaves nothing behind."""
        with self._refusing():
            if not os.access(self.path, os.W_OK):  # or not there; of a folder it tells nothing where root asks
                tempfile.TemporaryFile(dir=next(folder for folder in self.path.parents if folder.exists())).close()

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Turn what the system says of the path into an error of the user."""
        try:
            yield
        except UserError:
            raise
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"the log {str(self)!r} cannot be written: {reason}") from None

    def __str__(self) -> str:
        return str(self._asked.with_name(self.path.name))

    @property
    def has_begun(self) -> bool:
        """True from :meth:`start` on, as far as that has made the file; that of a resumed run has begun before."""
        return self._begun

    @property
    def is_open(self) -> bool:
        """True from :meth:`start` to :meth:`close`, which also comes when the disk is full."""
        return self._descriptor is not None

    def start(self, config: Mapping[str, Any], *, resume_step: int | None) -> None:
        """Open the file and write EXPERIMENT_START, unless a log is resumed that has one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if resume_step is None or not self._has_own or not self._take_up(resume_step):
            first_line = encode_event({"event": START, "config": config})
            self._descriptor = self._open_new()
            self._append(first_line)
        self._begun = True

    def event(self, event: Mapping[str, Any]) -> None:
        self._append(encode_event(event))

    def look(self) -> int:
        """Size of the file, bytes, while it is open; tells once what somebody else has done to it."""
        assert self._descriptor is not None
        found = os.fstat(self._descriptor)
        if stat.S_ISREG(found.st_mode) and not self.harm:
            if not found.st_nlink:
                self.harm = "was replaced" if self.path.exists() else "was deleted"
            elif found.st_size < self._size:
                self.harm = "was cut short"
            if self.harm:
                LOGGER.warning("%s %s by somebody else and lacks lines of this run", str(self), self.harm)
        return found.st_size

    def close(self) -> None:
        """Close the file. It is whole at any time; nothing is written."""
        if self._descriptor is not None:
            with suppress(OSError):  # one that nobody can ask is closed as well
                self.look()
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def state_dict(self) -> dict[str, Any]:
        """The name that was asked for and the one that was free, so that a resumed run finds its own file.

        Empty before the file is there: what has the name by then is somebody else's.
        """
        return {"asked": self._asked.name, "name": self.path.name} if self._begun else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Find the file of the run that is resumed, if the same name was asked for; it has none without a state."""
        self._begun = self._has_own = bool(state)
        if state.get("asked") == self._asked.name:
            self.path = self.path.with_name(state["name"])

    def _open_new(self) -> int:
        """Claim the first name that nobody has; an empty file is nobody's."""
        taken = str(self)
        for number in count(2):
            try:
                descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
                break
            except FileExistsError:
                if self.path.stat().st_size == 0:
                    descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
                    break
            self.path = self.path.with_name(f"{self._asked.stem}-{number}{self._asked.suffix}")
        if str(self) != taken:
            LOGGER.warning("%s is there already and is left as it is; this run writes %s", taken, str(self))
        return descriptor

    def _take_up(self, resume_step: int) -> bool:
        """Cut the log of the earlier run back to a step and open it; ``False``, and a warning, if there is none."""
        if not _is_log(self.path):
            LOGGER.warning("%s is not a log that can be continued at step %d; a new one begins", str(self), resume_step)
            return False
        cut_back(self.path, resume_step)
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        return True

    def _append(self, line: bytes) -> None:
        descriptor = self._descriptor
        if descriptor is None:
            raise ValueError("the log is not open")
        whole = self.look()
        try:
            written = os.write(descriptor, line)
            while written < len(line):  # a full disk takes what fits, and only the next write says why
                written += os.write(descriptor, line[written:])
            self._size = whole + len(line)
        except BaseException:
            with suppress(OSError):
                if os.fstat(descriptor).st_size != whole + len(line):  # Ctrl-C may come when all of it is in
                    os.ftruncate(descriptor, whole)
            raise


def cut_back(path: Path, step: int) -> None:
    """Drop from a log, in place, what belongs to later steps, the events that end a run, and a last line cut short.

    All other lines are kept byte for byte. The new file is written aside and renamed, so the log is whole at any time;
    a log from which nothing is dropped is not touched.
    """
    path = path.resolve()  # a link stays a link
    if sum(map(len, _kept(path, step))) == path.stat().st_size:
        return
    with written_aside(path, synced=False) as file:
        file.writelines(_kept(path, step))


def _kept(path: Path, step: int) -> Iterator[bytes]:
    with open(path, "rb") as file:
        for line in file:
            if line.endswith(b"\n") and not _is_later(line, step):
                yield line


def _is_later(line: bytes, step: int) -> bool:
    """Return whether a line is of the end of a run or of a later step. An unreadable line stays for the reader.

    An evaluation after that very step is later, too: the checkpoint knows which there were, and they are written again.
    """
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    if not isinstance(event, dict):
        return False
    after = (step_of(event) or 0) + (event.get("event") == VALIDATION)
    return event.get("event") in TERMINAL_EVENTS or event.get("at_end") is True or after > step


def _is_log(path: Path) -> bool:
    """Return whether a file begins with a whole EXPERIMENT_START."""
    try:
        with open(path, "rb") as file:
            first = file.readline()
        event = orjson.loads(first) if first.endswith(b"\n") else None
    except (FileNotFoundError, orjson.JSONDecodeError):
        return False
    return isinstance(event, dict) and event.get("event") == START
