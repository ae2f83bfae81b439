"""One log that is watched: a file with its runs, whatever happens to the file."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from stat import S_ISDIR

from rmetric.errors import UserError
from rmetric.importers import AUTO
from rmetric.importers.format import files_of_folder
from rmetric.importers.log_names import Place
from rmetric.watch.news import News
from rmetric.watch.sources import NewLines, NotByLinesError, Portion, WholeLog, source_of
from rmetric.watch.watched_run import WatchedRun

COMPARED_BYTES = 256
"""Bytes at the start of a file by which one that was cut and written anew is told from one that was continued."""


class FileChange(Enum):
    """What happened to a file since the last look."""

    NONE = "none"
    GREW = "grew"
    """It is longer, or was rewritten in place with the same start (:meth:`NewLines.continues` looks at the rest)."""
    ANEW = "anew"
    """Another file stands there, or the same one was cut; also the first time it is seen."""
    ABSENT = "absent"


class Growth:
    """Watches one path; of a folder that is a log, all its files."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._identity: tuple[int, int] | None = None
        self._size = 0
        self._head = b""
        self.age_s = 0.0
        """Seconds between the latest change of the file and the look that saw it, by the clock on the wall."""

    def look(self) -> FileChange:
        """What happened since the last look."""
        try:
            found = self._path.stat()
            size, changed_ns = _of_folder(self._path) if S_ISDIR(found.st_mode) else (found.st_size, found.st_mtime_ns)
        except OSError:
            return FileChange.ABSENT
        stamp = (found.st_ino, size, changed_ns)
        if stamp == self._stamp:
            return FileChange.NONE
        try:
            head = b"" if S_ISDIR(found.st_mode) else _head(self._path)
        except OSError:
            return FileChange.ABSENT
        identity = (found.st_dev, found.st_ino)
        continued = identity == self._identity and size >= self._size and head.startswith(self._head)
        self._stamp, self._identity, self._size, self._head = stamp, identity, size, head
        self.age_s = max(0.0, time.time() - changed_ns / 1e9)
        return FileChange.GREW if continued else FileChange.ANEW


def _of_folder(folder: Path) -> tuple[int, int]:
    """Sum of the sizes of a log's files, and time of the latest change of one; raises ``FileNotFoundError`` without."""
    files = [file.stat() for file in files_of_folder(folder)]
    if not files:
        raise FileNotFoundError(folder)
    return sum(file.st_size for file in files), max(file.st_mtime_ns for file in files)


def _head(file: Path) -> bytes:
    with open(file, "rb") as opened:
        return opened.read(COMPARED_BYTES)


class WatchedLog:
    """Follows a file through growth, rotation, truncation and absence.

    A file that was cut or replaced is read from its start. Where its steps go on, so does the run, and where it was cut
    to go on from a checkpoint, without what was cut off; where its steps begin again, or little is left to know the run
    by (:meth:`~rmetric.diagnosis.new_records.NewRecords.begin_with`), another run begins.

    Parameters
    ----------
    path
        The file, or the folder that is a log as a whole; it need not be there.
    format, mapping
        As in :func:`rmetric.diagnosis.diagnose`.
    silent_after_s
        As in :class:`~rmetric.watch.watched_run.Silence`.
    within
        The folder of all that is watched, which names of runs leave out.
    """

    def __init__(
        self, path: Path, format: str = AUTO, mapping: Mapping[str, str] | None = None,
        silent_after_s: float | None = None, *, within: Path | None = None,
    ) -> None:  # fmt: skip
        self.path = path
        self._within = within
        self.runs: list[WatchedRun] = []
        """In the order in which they began."""
        self.problem = ""
        """Why the file cannot be read as a log at present, or which mapped column it lacks; else empty."""
        self.unread = ""
        """Why the file, which was read before and has grown, cannot be read any more; else empty. The first reason: a
        message counts lines, and would be another one at each look."""
        self._format, self._mapping, self._silent_after_s = format, mapping or {}, silent_after_s
        self._growth = Growth(path)
        self._source: NewLines | WholeLog | None = None
        self._current: dict[str, WatchedRun] = {}
        self._before: dict[str, WatchedRun] = {}
        """What was known of runs whose log was cut and is read again at present."""
        self._begins_anew = False
        self._seen_at = -math.inf
        """When the file was there last."""

    def move_to(self, path: Path) -> None:
        """Go on in another file, such as that of the next checkpoint."""
        if path != self.path:
            self.path, self._growth, self._source = path, Growth(path), None
            for run in self._current.values():
                run.move_to(str(path))

    def hurry(self) -> None:
        """Let the next look read what was put off."""
        if isinstance(self._source, WholeLog):
            self._source.pace.hurry()

    def poll(self, now: float) -> tuple[bool, list[News]]:
        """Return whether anything was new, and the news."""
        change, news = self._growth.look(), []
        try:
            for one in self._news(change, now):
                news.append(one)  # noqa: PERF402 - what is known when reading fails is told
        except UserError as error:
            self.problem, self._source = str(error), None
            if self.runs and not self.unread and change is not FileChange.ANEW:
                self.unread = f"{self.path} can no longer be read, and is judged by what was read before ({error})"
        except OSError as error:
            self.problem = f"{self.path} cannot be read ({error.strerror})"
        return change in (FileChange.GREW, FileChange.ANEW), news

    def _news(self, change: FileChange, now: float) -> Iterator[News]:
        if change is FileChange.GREW and isinstance(self._source, NewLines) and not self._source.continues():
            change = FileChange.ANEW
        if change is FileChange.ANEW:
            self._begins_anew = True
            if not isinstance(self._source, WholeLog):  # that one reads from the start anyhow, and keeps its pace
                self._source = None
        # What a file held when it was first seen is as old as the file, and what has come since then is not: the clock
        # of its file system may be behind.
        at = max(now - self._growth.age_s, min(self._seen_at, now)) if change is FileChange.ANEW else now
        self._seen_at = self._seen_at if change is FileChange.ABSENT else now
        grown = False
        for portion in self._portions(change):
            grown = True
            news = self._run_of(portion).extend(portion, at)
            yield from (one for one in news if not self._was_told(one, portion))
        self._before = {}
        if not grown or at < now:
            for run in self._current.values():
                yield from run.rest(now)

    def _portions(self, change: FileChange) -> Iterator[Portion]:
        if change is FileChange.ABSENT:
            return
        if self._source is None and change is not FileChange.NONE:
            # Until there are records, each look may tell another format: the first lines are often settings.
            yield from self._first_portions(source_of(self.path, self._format, self._mapping))
        elif isinstance(self._source, WholeLog):
            yield from self._source.read() if change is not FileChange.NONE else self._source.catch_up()
        elif self._source is not None and change is not FileChange.NONE:
            try:
                yield from self._source.read()
            except NotByLinesError:
                self._source = WholeLog(self.path, self._source.format, self._mapping)
                yield from self._source.read()
        if change is not FileChange.NONE:
            self.unread = "" if self._source else self.unread
            self.problem = f"{self.path}: {self._source.lacks}" if self._source and self._source.lacks else ""

    def _first_portions(self, source: NewLines | WholeLog) -> Iterator[Portion]:
        try:
            for portion in source.read():
                if len(portion.observations):
                    self._source = source
                if self._source is not None:
                    yield portion
        except NotByLinesError:
            yield from self._first_portions(WholeLog(self.path, source.format, self._mapping))

    def _run_of(self, portion: Portion) -> WatchedRun:
        """The run that a portion belongs to; a new one if its steps begin again."""
        known = self._current.get(portion.run)
        starts_again = known is not None and self._begins_anew and not known.continues_in(portion)
        if len(portion.observations):
            self._begins_anew = False
        is_otherwise = known is not None and not starts_again and known.is_read_otherwise(portion)
        if known is not None and (starts_again or is_otherwise) and known.begins_with(portion):
            again = known.read_otherwise() if is_otherwise else known.from_its_start()
            self._before |= {} if is_otherwise else {portion.run: known}
            self.runs[self.runs.index(known)] = self._current[portion.run] = again
            known = again
        elif known is None or starts_again:
            number = "" if known is None else f"-{len(self.runs) + 1}"
            known = WatchedRun(self._name_of(portion.run) + number, str(self.path), self._silent_after_s)
            self._current[portion.run] = known
            self.runs.append(known)
        return known

    def _name_of(self, run: str) -> str:
        """Name of a run of the log, the same in all checkpoints, and whatever other logs there will be."""
        place = Place.of(self.path, run)
        return place.below(self._within or place.folder)

    def _was_told(self, news: News, portion: Portion) -> bool:
        """Whether news are a finding that has been told: what it is about is the same as before the log was cut."""
        before = self._before.get(portion.run)
        return before is not None and news.finding is not None and before.saw(news.finding, portion)
