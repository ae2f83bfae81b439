"""The lines of a log and the events in them, a block at a time.

What is sound is read by the block; what is damaged line by line, with the same results and reports of damage.
"""

from __future__ import annotations

import io
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from rmetric.batches import NumberedEvent, RecordBatch, batched
from rmetric.compiled import pays
from rmetric.errors import UserError
from rmetric.files import opened_as_utf8
from rmetric.records import Event

if TYPE_CHECKING:
    from rmetric.line_pattern import LinePattern


MAX_LINE_BYTES = 1 << 20
BLOCK_BYTES = 1 << 18
"""Bytes that are parsed at a time: few enough to stay in the processor's cache, so many that calls cost little."""
MAX_TEXT = 200

OnDamage = Callable[[int, str], None]
CUT_OFF = "cut off; skipped"
"""Damage of a last line: its writer was killed, or has not ended it yet."""
PLAIN_TEXT = "not JSON but text; skipped"
_NOT_FINITE_IN_C = re.compile(
    r"(?<=[:\[,\s])\+?(?P<minus>-?)(?:(?P<nan>nan)|inf(?:inity)?)(?=\s*[,\]}])", re.IGNORECASE
)
"""What JSON has not, as ``printf`` writes it."""
NOT_UTF_8 = "not UTF-8; the bad bytes were replaced"
"""Damage of a line that nothing shows to be a piece of an object."""


WHOLE_LOG = 0
"""The line of damage that concerns all lines."""


def place(path: str | Path, line: int) -> str:
    """Place of damage, for a message."""
    return str(path) if line == WHOLE_LOG else f"{path}, line {line}"


def plain_text(value: Any, most: int | None = MAX_TEXT) -> str:
    """Text of a log that is fit for a file and a terminal: short, without control characters or broken Unicode.

    ``most`` characters are kept; ``None``: all.

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
    """The same; a :class:`~rmetric.batches.RecordBatch` stands for records that can be read together."""
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
        if isinstance(found[-1][1], RecordBatch) and len(block) >= BLOCK_BYTES:  # in a short log it would not pay
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
    """The events of consecutive lines, if each of them is an object of strict JSON."""
    try:
        events = [orjson.loads(line) for line in block.removesuffix(b"\n").split(b"\n")]
    except orjson.JSONDecodeError:
        return None
    return events if set(map(type, events)) == {dict} else None


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
        event = loosely_parsed(text, parse_int=_whole)
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
            event["non_finite"] = [*named_non_finite(event), *named]
    return event


def loosely_parsed(text: str | bytes, parse_int: Callable[[str], int | float] | None = None) -> Any:
    """The value of a JSON text with NaN and infinity as Python or C writes them; raises ``ValueError`` if it is none.

    >>> loosely_parsed('{"step": 5, "loss": -nan, "grad_norm": inf}')
    {'step': 5, 'loss': nan, 'grad_norm': inf}
    """
    try:
        return json.loads(text, parse_int=parse_int)
    except ValueError:
        text = text if isinstance(text, str) else text.decode()
        spelled = _NOT_FINITE_IN_C.sub(lambda found: "NaN" if found["nan"] else f"{found['minus']}Infinity", text)
        if spelled == text:
            raise
        return json.loads(spelled, parse_int=parse_int)


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


def named_non_finite(record: Event) -> list[Any]:
    named = record.get("non_finite")
    return named if isinstance(named, list) else []
