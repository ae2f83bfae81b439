"""Readers of a log that grows: new lines alone where the format allows it, else the whole log again, at leisure."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

import numpy as np

from rmetric.batches import NumberedEvent
from rmetric.errors import UserError
from rmetric.importers import IMPORTERS, Caveats, Damage, LoneLines, runs_of
from rmetric.importers.format import format_of
from rmetric.importers.rows import NO_COLUMN
from rmetric.importers.run_marks import NOTE, RUN
from rmetric.log_lines import WHOLE_LOG, passed_over
from rmetric.log_reader import assemble, chunks
from rmetric.records import TERMINAL_EVENTS, Event, Observations, Run
from rmetric.watch.pace import Pace

PORTION_BYTES = 1 << 24
"""New bytes that are read at a time."""
MOST_HEADER_BYTES = 1 << 16
END_BYTES = 256
"""Bytes at the end of what was read by which a log that was written anew is told from one that was continued."""


class NotByLinesError(Exception):
    """New lines cannot be understood without those before: what is a step, a loss or a run depends on the whole log."""


@dataclass(frozen=True, kw_only=True)
class Portion:
    """Records of one run, the new ones among them."""

    run: str
    format: str
    observations: Observations
    events: Sequence[Event]
    """What else the log says."""
    caveats: Caveats
    """Of all that was read of the run so far."""

    @property
    def ended(self) -> bool:
        """True if the log says that the run is over."""
        return any(event.get("event") in TERMINAL_EVENTS for event in self.events)


@dataclass
class NewLines:
    """Reads lines that were appended; a line that is not finished waits."""

    path: Path
    lines: LoneLines
    lacks: str = ""
    """What says that a mapped column is not there so far; empty if all are."""
    _offset: int = 0
    _header: bytes = b""
    _end: bytes = b""
    _last_step: int = -1
    _had_all: bool = False
    _lines_read: int = 0
    _damage: Damage = field(default_factory=Damage)

    @property
    def format(self) -> str:
        return self.lines.format

    def continues(self) -> bool:
        """Whether what was read last still stands where it stood."""
        with open(self.path, "rb", buffering=0) as file:
            return self._continues_in(file)

    def read(self) -> Iterator[Portion]:
        """Portions of what is new, up to the end of the file; of one that is cut or replaced meanwhile, no more."""
        with open(self.path, "rb", buffering=0) as file:  # a buffer would hold what stood there before
            while self._continues_in(file) and (lines := _next_lines(file)):
                read, end = len(lines), lines[-END_BYTES:]
                if self.format == "csv" and not self._header:
                    self._header, lines = _header_and_rest(lines)
                portion = self._portion(lines)
                self._offset, self._end = self._offset + read, end
                self._lines_read += lines.count(b"\n") + (0 if self._lines_read else self._header.count(b"\n"))
                yield portion

    def _continues_in(self, file: FileIO) -> bool:
        """Whether what was read last still stands in the file; if so, the file is at the first new byte then."""
        file.seek(self._offset - len(self._end))
        return file.read(len(self._end)) == self._end

    def _portion(self, lines: bytes) -> Portion:
        """Through the importer of the format, which reads files."""
        lacking: list[str] = []
        before, repeated = self._lines_read, self._header.count(b"\n") if self._lines_read else 0

        def on_damage(line: int, message: str) -> None:
            if message.startswith(NO_COLUMN):
                lacking.append(message)
            if not before or line > repeated:  # what is said of the header, or of all lines, is said once
                self._damage.add(line + before - repeated if line != WHOLE_LOG else line, message)

        with tempfile.TemporaryDirectory(prefix="rmetric-") as folder:
            part = Path(folder) / self.path.name
            part.write_bytes(self._header + lines)
            if not self.lines.go_on_in(part):
                raise NotByLinesError
            try:
                events = IMPORTERS[self.format](part, self.lines.mapping, on_damage)
                run = assemble(self.path.stem, chunks(_by_lines(events), passed_over))
            except UserError:
                raise NotByLinesError from None
        if len(run.observations):
            self._had_all = self._had_all or not lacking
            self.lacks = "" if self._had_all else lacking[0]
        self._go_on_to(run.observations)
        return _portion(run, self.format, self._damage.so_far())

    def _go_on_to(self, records: Observations) -> None:
        """Whether a run is resumed where its steps go back, a few lines do not tell. Those of our monitor never do."""
        trained = records.step[~np.isnan(records["training_loss"])]
        if self.format != "rmetric" and len(trained) and trained[0] < self._last_step:
            raise NotByLinesError
        self._last_step = int(trained[-1]) if len(trained) else self._last_step


@dataclass
class WholeLog:
    """Reads the whole log again when it has changed, so rarely that it costs a twentieth of the time at most."""

    path: Path
    format: str
    mapping: Mapping[str, str]
    lacks: str = ""
    """What says that a mapped column is not there so far; empty if all are."""
    _is_due: bool = False
    pace: Pace = field(default_factory=Pace)

    def read(self) -> Iterator[Portion]:
        """All records of all runs."""
        self._is_due = True
        yield from self.catch_up()

    def catch_up(self) -> Iterator[Portion]:
        """The same if a change was put off and its time has come."""
        if not self._is_due or not self.pace.is_due:
            return
        self._is_due = False
        with self.pace.taken():
            found = [*runs_of(self.path, self.format, self.mapping)]
        self.lacks = next((note for one in found for note in one.notes if NO_COLUMN in note), "")
        yield from (_portion(one.run, one.format, one.caveats) for one in found)


def source_of(path: Path, format: str, mapping: Mapping[str, str]) -> NewLines | WholeLog:
    """The reader that suits a log; raises :class:`UserError` for what is of no known format."""
    name = format_of(path, format, mapping)
    lines = LoneLines.of(path, name, mapping)
    return WholeLog(path, name, mapping) if lines is None else NewLines(path, lines)


def _portion(run: Run, format: str, caveats: Caveats) -> Portion:
    return Portion(run=run.name, format=format, observations=run.observations, events=run.events, caveats=caveats)


def _by_lines(events: Iterable[NumberedEvent]) -> Iterator[NumberedEvent]:
    """The same events, as long as the importer read them as they stand."""
    for numbered in events:
        if numbered[1].get("event") in (RUN, NOTE):
            raise NotByLinesError
        yield numbered


def _next_lines(file: FileIO) -> bytes:
    """Whole lines from where a file is."""
    block = file.read(PORTION_BYTES)
    whole = block[: block.rfind(b"\n") + 1]
    if not whole and len(block) == PORTION_BYTES:  # a line that never ends is no record
        whole = block
    return whole


def _header_and_rest(lines: bytes) -> tuple[bytes, bytes]:
    """Lines up to the first that is no comment, and those after it."""
    end = 0
    while end < min(len(lines), MOST_HEADER_BYTES):
        start, end = end, lines.find(b"\n", end) + 1 or len(lines)  # a line that never ends
        if lines[start:end].strip() and not lines[start:end].startswith(b"#"):
            break
    return lines[:end], lines[end:]
