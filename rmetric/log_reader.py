"""Read a log back: lines, events, columns of up to 65,536 records at a time, or the whole run.

What is sound is read by the block; what is damaged line by line, with the same results and reports of damage.
"""

from __future__ import annotations

import io
import json
import math
import os
import reprlib
import warnings
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from numpy.typing import NDArray

from rmetric.batches import COLUMNS, Batch, NumberedEvent, batched
from rmetric.compiled import pays
from rmetric.errors import UserError
from rmetric.files import opened_as_utf8
from rmetric.measurements import MEASUREMENTS, MECHANISM, VERDICTS, in_convention
from rmetric.records import MAX_STEP, START, Event, Observations, Run, fresh_evaluations, held, whole_step

if TYPE_CHECKING:
    from rmetric.line_pattern import LinePattern

CHUNK_RECORDS, WHOLE = 65_536, 2**62
"""Records of a chunk, and of one that holds a whole log."""
MAX_LINE_BYTES = 1 << 20
BLOCK_BYTES = 1 << 18
"""Bytes that are parsed at a time: few enough to stay in the processor's cache, so many that calls cost little."""
MAX_TEXT = 200
LATEST = {name for name, measurement in MEASUREMENTS.items() if measurement.merge == "latest"}
"""Measurements whose gaps a reader fills with the latest known value."""

OnDamage = Callable[[int, str], None]
CUT_OFF = "cut off; skipped"
"""Damage of a last line: its writer was killed, or has not ended it yet."""
PLAIN_TEXT = "not JSON but text; skipped"
NOT_UTF_8 = "not UTF-8; the bad bytes were replaced"
"""Damage of a line that nothing shows to be a piece of an object."""
_BETWEEN = int.from_bytes(os.urandom(7))
"""Number that no log holds, for no log can know it."""


WHOLE_LOG = 0
"""The line of damage that concerns all lines."""


def place(path: str | Path, line: int) -> str:
    """Where damage is, for a message."""
    return str(path) if line == WHOLE_LOG else f"{path}, line {line}"


def plain_text(value: Any, most: int | None = MAX_TEXT) -> str:
    """Text of a log that is fit for a file and a terminal: short, without control characters or broken Unicode.

    Parameters
    ----------
    most
        Characters that are kept; ``None``: all.

    >>> plain_text("loss\\x1b[31m")
    'loss?[31m'
    """
    short = str(value)[:most].encode("utf-8", "replace").decode()
    return "".join(character if character.isprintable() else "?" for character in short)


def strict(path: str | Path) -> OnDamage:
    """What readers do about damage if nobody listens: it is an error, but a last line that was cut off is a warning.

    Raises
    ------
    UserError
        With the place of the damage.
    """

    def report(line: int, message: str) -> None:
        if message != CUT_OFF:
            raise UserError(f"{place(path, line)}: {message}")
        warnings.warn(f"{path}, line {line}: {message}; its writer was killed, or still writes", stacklevel=2)

    return report


def passed_over(line: int, message: str) -> None:
    """Pass over damage, where a log is looked at before, or beside, its reader, who tells of it."""


def read_events(path: str | Path, on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """The JSON objects of a file with their line numbers, in bounded memory.

    A line that is no JSON object is reported to ``on_damage(line, message)`` and skipped. Bare NaN and Infinity, which
    Python writes and JSON forbids, are understood: the field is moved to ``non_finite``.
    """
    for first, block in _blocks(path, on_damage):
        events = _parsed_together(block)
        yield from _parsed_singly(block, first, on_damage) if events is None else enumerate(events, first)


def read_batches(path: str | Path, on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """The same; a :class:`~rmetric.batches.Batch` stands for records that can be read together."""
    pattern: LinePattern | None = None
    for first, block in _blocks(path, on_damage):
        begin = 0
        while pattern is not None and begin < len(block):
            batch, begin = pattern.batch(block, begin)
            if batch is None:
                break
            yield first, batch
            end = block.find(b"\n", begin) + 1 or len(block)
            yield from _parsed_singly(block[begin:end], first + len(batch.step), on_damage)  # mostly a single event
            first, begin = first + len(batch.step) + 1, end
        block = block[begin:]
        if (events := _parsed_together(block)) is None:
            yield from _parsed_singly(block, first, on_damage)
            continue
        found = list(batched(events, first))
        if isinstance(found[-1][1], Batch) and len(block) >= BLOCK_BYTES:  # in a short log it would not pay
            pattern = _pattern_of(block)
        yield from found


def _pattern_of(block: bytes) -> LinePattern | None:
    """The pattern of the last one of some lines; none where to read faster is all that compiled code would be for."""
    if not pays(0):
        return None
    from rmetric.line_pattern import LinePattern

    return LinePattern.of(block[block.rfind(b"\n", 0, -1) + 1 :])


def numbered_lines(path: str | Path, on_damage: OnDamage) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, with their numbers from 1 and their ends, in bounded memory.

    A byte-order mark is dropped; a line of more than :data:`MAX_LINE_BYTES` comes in pieces that end with a carriage
    return, as a progress bar writes them, or is reported and skipped.
    """
    for first, block in _blocks(path, on_damage):
        yield from _numbered(block, first)


def _numbered(block: bytes, first: int) -> Iterator[tuple[int, bytes]]:
    return ((number, line) for number, line in enumerate(io.BytesIO(block), first) if line.strip())


def _blocks(path: str | Path, on_damage: OnDamage) -> Iterator[tuple[int, bytes]]:
    """Whole lines of a file, about :data:`BLOCK_BYTES` at a time, each time with the number of the first."""
    with opened_as_utf8(path) as file:
        number, begun = 1, b""
        while block := begun + file.read(BLOCK_BYTES):
            whole = block.rfind(b"\n") + 1
            missing = max(MAX_LINE_BYTES - (len(block) - whole), 0)
            rest = file.readline(missing) if whole < len(block) else b""
            is_endless = len(rest) == missing and whole < len(block) and not rest.endswith(b"\n")
            block, begun = block + rest, b""
            if is_endless:
                bars = block.rfind(b"\r", whole) + 1
                block, begun = block[: bars or whole], block[bars:] if bars else b""
            yield number, block
            number += int(np.count_nonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")))  # bytes count slowly
            if is_endless and not bars:
                on_damage(number, f"longer than {MAX_LINE_BYTES:,} bytes; skipped")
                while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                    pass
                number += 1


def _parsed_together(block: bytes) -> list[Event] | None:
    """The events of consecutive lines, if each of them is an object of strict JSON.

    To parse an array of all is faster than line after line. The number between them shows that no two lines have become
    one value, and none has become two.
    """
    lines = block.removesuffix(b"\n")
    try:
        values = orjson.loads(b"[%b]" % lines.replace(b"\n", b",%d," % _BETWEEN))
    except orjson.JSONDecodeError:
        return None
    events, between = values[::2], values[1::2]
    is_sound = between.count(_BETWEEN) == len(between) == lines.count(b"\n") and set(map(type, events)) == {dict}
    return events if is_sound else None


def _parsed_singly(block: bytes, first: int, on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """The events of consecutive lines, one line after another."""
    for number, line in _numbered(block, first):
        try:
            event = orjson.loads(line)
        except orjson.JSONDecodeError:
            event = _parse_leniently(line, number, on_damage)
            if event is _UNUSABLE:
                continue
        if isinstance(event, dict):
            yield number, event
        else:
            on_damage(number, f"a JSON object is due, not {type(event).__name__}; skipped")


_UNUSABLE = object()


def _parse_leniently(line: bytes, number: int, on_damage: OnDamage) -> Any:
    """The value of a line that is not strict JSON; ``_UNUSABLE``, and a report, if it is no JSON at all."""
    text = decoded(line, number, on_damage)
    try:
        event = json.loads(text, parse_int=_whole)
        if "\\ud" in text.casefold():  # half a character, as of a text that was cut
            event = json.loads(json.dumps(event, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        is_piece = text.startswith("{") or '":' in text or text.rstrip().endswith("}") or "\0" in text
        as_piece = "not JSON; skipped" if line.endswith(b"\n") else CUT_OFF
        on_damage(number, as_piece if is_piece else PLAIN_TEXT)
        return _UNUSABLE
    if isinstance(event, dict):
        named = [key for key, value in event.items() if isinstance(value, float) and not math.isfinite(value)]
        event = {key: value for key, value in event.items() if key not in named}
        if named:
            event["non_finite"] = [*_named_non_finite(event), *named]
    return event


def decoded(line: bytes, number: int, on_damage: OnDamage) -> str:
    """The text of a line; what is no UTF-8 is replaced, and reported."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        on_damage(number, NOT_UTF_8)
        return line.decode(errors="replace")


def _whole(digits: str) -> int | float:
    """A whole number of JSON as the parser of strict lines has it: what 64 bits do not hold is a float."""
    number = int(digits)
    return number if -(2**63) <= number < 2**64 else float(digits)


def _named_non_finite(record: Event) -> list[Any]:
    named = record.get("non_finite")
    return named if isinstance(named, list) else []


@dataclass
class Chunk:
    """Up to :data:`CHUNK_RECORDS` consecutive METRICS records of a log, and as many events that stood between them."""

    step: NDArray[np.int64]
    columns: dict[str, NDArray[np.float64]]
    """Raw values of :data:`MEASUREMENTS`, :data:`MECHANISM` and :data:`VERDICTS` by log name, each of shape (n,); gaps
    are not filled."""
    events: list[tuple[int, Event]]
    """Other events, each with the index (0 to n) of the record of this chunk that it stands before."""
    alerts: dict[str, int] | None
    """``alerts`` of the last record, empty: none so far; ``None`` if it does not say."""


def chunks(events: Iterable[NumberedEvent], on_damage: OnDamage, size: int = CHUNK_RECORDS) -> Iterator[Chunk]:
    """Turn events into columns, ``size`` records at a time.

    A METRICS record without a usable ``step``, or whose step does not lie after the record before it, is reported and
    left out: a detector needs time to go forward. Of a record only its numbers are held, so that memory is bounded
    whatever else a line holds.
    """
    gathered, last_step = _Gathered(), -1
    for numbered in events:
        for line, event in _in_one_piece(numbered, last_step):
            if isinstance(event, Batch):
                last_step = int(event.step[-1])
                gathered = yield from _filled(gathered, event, size)
                continue
            if event.get("event", "METRICS") != "METRICS":
                gathered.events.append((len(gathered.steps), event))
            else:
                step = event.get("step")
                if type(step) is not int or not last_step < step < MAX_STEP:
                    step = _usable_step(step, last_step, line, on_damage)
                    if step is None:
                        continue
                last_step = step
                gathered.add(line, step, event, on_damage)
            if len(gathered.steps) == size or len(gathered.events) == size:
                yield gathered.chunk()
                gathered = _Gathered()
    if gathered.steps or gathered.events:
        yield gathered.chunk()


def _filled(gathered: _Gathered, batch: Batch, size: int) -> Generator[Chunk, None, _Gathered]:
    """The chunks that a batch fills up; returns what is gathered after them."""
    begin = 0
    while begin < len(batch.step):
        end = begin + size - len(gathered.steps)
        gathered.add_batch(batch, slice(begin, end))
        if len(gathered.steps) == size:
            yield gathered.chunk()
            gathered = _Gathered()
        begin = end
    return gathered


def _in_one_piece(numbered: NumberedEvent, last_step: int) -> Iterable[NumberedEvent]:
    """An event as it is; a batch that does not begin after ``last_step`` record by record."""
    line, event = numbered
    return enumerate(event.rows(), line) if isinstance(event, Batch) and event.step[0] <= last_step else (numbered,)


def _usable_step(step: Any, last_step: int, line: int, on_damage: OnDamage) -> int | None:
    """A step as a whole number after ``last_step``; ``None``, and a report, if it is none."""
    whole = whole_step(step)
    if whole is None:
        on_damage(line, f"a record needs a whole number below 2^53 as its step, not {reprlib.repr(step)}; skipped")
    elif whole <= last_step:
        again = "repeats a step" if whole == last_step else "goes back in time"
        on_damage(line, f"step {whole} after step {last_step} {again}; skipped")
        whole = None
    return whole


_NOT_MEASURED = (math.nan,) * len(COLUMNS)
_FLOAT = frozenset({float})


class _Gathered:
    """Numbers of the records of a chunk, row after row, and the events between them."""

    def __init__(self) -> None:
        self.steps = array("q")
        self.events: list[tuple[int, Event]] = []
        self._values = array("d")
        self._non_finite: list[tuple[int, list[str]]] = []
        self._mechanism: list[tuple[int, dict[str, float]]] = []
        self._alerts: Any = None

    def add(self, line: int, step: int, record: Event, on_damage: OnDamage) -> None:
        get = record.get
        row: Sequence[Any] = tuple(map(get, COLUMNS, _NOT_MEASURED))
        if not _FLOAT.issuperset(map(type, row)):
            row = [_as_float(value, name, line, on_damage) for name, value in zip(COLUMNS, row, strict=True)]
        self._values.extend(row)
        if "non_finite" in record:
            named = _named_non_finite(record)
            self._non_finite.append((len(self.steps), [name for name in COLUMNS if name in named]))
        if "mechanism" in record:
            self._mechanism.append((len(self.steps), _mechanism_of(record, line, on_damage)))
        self._alerts = get("alerts")
        self.steps.append(step)

    def add_batch(self, batch: Batch, rows: slice) -> None:
        self._values.frombytes(batch.numbers[rows].tobytes())
        self.steps.frombytes(batch.step[rows].tobytes())
        self._alerts = batch.alerts[rows][-1]

    def chunk(self) -> Chunk:
        values_CN = np.asarray(self._values).reshape(-1, len(COLUMNS)).T.copy()
        columns = {name: values for name, values in zip(COLUMNS, values_CN, strict=True) if not np.isnan(values).all()}
        for index, names in self._non_finite:
            for name in names:
                columns.setdefault(name, np.full(len(self.steps), np.nan))[index] = np.inf
        for index, measured in self._mechanism:
            for name, value in measured.items():
                columns.setdefault(name, np.full(len(self.steps), np.nan))[index] = value
        return Chunk(
            step=np.array(self.steps, dtype=np.int64),
            columns=columns,
            events=self.events,
            alerts=self._alerts if isinstance(self._alerts, dict) else None,
        )


def _mechanism_of(record: Event, line: int, on_damage: OnDamage) -> dict[str, float]:
    """Measurements that a record holds under ``mechanism``; one that is not finite as infinity."""
    found = record["mechanism"]
    if not isinstance(found, dict):
        on_damage(line, f"mechanism is {str(found)[:40]!r}, not an object; taken as not measured")
        return {}
    named = {name: math.inf for name in _named_non_finite(found) if name in MECHANISM}
    return named | {
        name: _as_float(found[name], name, line, on_damage) for name in MECHANISM if found.get(name) is not None
    }


def _as_float(value: Any, name: str, line: int, on_damage: OnDamage) -> float:
    """A value of a record as a number; some loggers write ``nan`` and ``1e-3`` as text. NaN: not measured."""
    if value is None or type(value) is float:
        return math.nan if value is None else value
    try:
        if isinstance(value, bool):
            raise TypeError(value)
        return in_convention(float(value))
    except OverflowError:  # a whole number beyond all doubles
        return math.inf
    except (TypeError, ValueError):
        on_damage(line, f"{name} is {str(value)[:40]!r}, not a number; taken as not measured")
        return math.nan


def observations_of(chunk: Chunk) -> Observations:
    """The observations of a chunk as the log has them, with the latest known values of the chunk filled in."""
    columns = {name: values for name, values in chunk.columns.items() if name not in VERDICTS}
    evaluated = np.zeros(len(chunk.step), dtype=bool)
    if "validation_loss" in columns:
        evaluated = fresh_evaluations(columns["validation_loss"])
    for name in columns.keys() & LATEST:
        columns[name] = held(columns[name])
    return Observations(chunk.step, columns, evaluated)


def read_run(path: str | Path, on_damage: OnDamage | None = None) -> Run:
    """Read a whole log of the project's (or the authors') format into memory.

    Damage is reported to ``on_damage(line, message)``; without it, :func:`strict` judges.
    """
    file = Path(path)
    report = on_damage or strict(file)
    return assemble(file.stem, chunks(read_batches(file, report), report, WHOLE))


def assemble(name: str, pieces: Iterable[Chunk]) -> Run:
    """One run out of all its chunks."""
    run = Run(name, {}, Observations(np.empty(0, dtype=np.int64)))
    filled: list[Chunk] = []
    for piece in pieces:
        tell(run, piece.events)
        if len(piece.step):
            filled.append(piece)
    if filled:
        whole = filled[0] if len(filled) == 1 else _joined(filled)
        run.observations = observations_of(whole)
        run.verdicts = {key: values for key, values in whole.columns.items() if key in VERDICTS}
        run.alerts = whole.alerts or {}
    return run


def tell(run: Run, events: Iterable[tuple[int, Event]]) -> None:
    """Put the next events of its log, as :class:`Chunk` has them, into a run.

    Where a second run was appended to a log, the first one's configuration stays, as its records do.
    """
    for _, event in events:
        if event.get("event") == START:
            config = event.get("config")
            run.config = run.config or (config if isinstance(config, dict) else {})
        else:
            run.events.append(event)


def _joined(pieces: Sequence[Chunk]) -> Chunk:
    """The records of consecutive chunks as one."""
    names = dict.fromkeys(name for piece in pieces for name in piece.columns)
    missing = [np.full(len(piece.step), np.nan) for piece in pieces]
    return Chunk(
        step=np.concatenate([piece.step for piece in pieces]),
        columns={
            name: np.concatenate([piece.columns.get(name, gap) for piece, gap in zip(pieces, missing, strict=True)])
            for name in names
        },
        events=[],
        alerts=pieces[-1].alerts,
    )
