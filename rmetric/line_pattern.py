"""Lines of a log that differ from the one before in their numbers alone, read by compiled code.

Most lines of a long log are of this kind, and to make dictionaries of them takes longer than to judge them. What is not
plainly so is left to a JSON parser. Importing this module imports Numba (half a second).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import numpy as np
import orjson

from rmetric.batches import COLUMNS, RecordBatch
from rmetric.compiled import compiled, interruptible
from rmetric.records import MAX_STEP, Event

_PLACES = {name: place for place, name in enumerate((*COLUMNS, "step"))}
_NUMBER = "\0a number\0"
"""Stands for a number in the text of a record."""
_POWERS = np.array([float(f"1e{exponent}") for exponent in range(23)])
"""Powers of ten that a double holds exactly."""


class LinePattern:
    """The text of a METRICS record around its numbers.

    >>> line = b'{"event":"METRICS","step":%d,"training_loss":%s,"alerts":{}}\\n'
    >>> pattern = LinePattern.of(line % (1, b"2.5"))
    >>> batch, _ = pattern.batch(line % (2, b"2.25") + line % (3, b"1e-3"))
    >>> batch.step.tolist(), batch.numbers[:, 0].tolist()
    ([2, 3], [2.25, 0.001])
    """

    def __init__(self, record: Event, write: Callable[[Event], bytes]) -> None:
        self._alerts = record.get("alerts")
        names = [name for name in record if name in _PLACES]
        texts = write({**record, **dict.fromkeys(names, _NUMBER)}).split(orjson.dumps(_NUMBER))
        self._places = np.array([_PLACES[name] for name in names])
        self._text = np.frombuffer(b"".join(texts) + b"\n", dtype=np.uint8)
        self._ends = np.cumsum([len(text) for text in texts])
        self._ends[-1] += 1

    @classmethod
    def of(cls, line: bytes) -> LinePattern | None:
        """Pattern of a line; ``None`` if values in it are no numbers, or it is in the layout of another writer."""
        record = orjson.loads(line)
        if RecordBatch.of([record]) is None:
            return None
        for write in (orjson.dumps, _written_by_python):
            try:
                pattern = cls(record, write)
            except (orjson.JSONEncodeError, RecursionError):  # too deep a nest
                continue
            if len(pattern._ends) == len(pattern._places) + 1 and pattern.batch(line)[1] == len(line):
                return pattern
        return None

    def batch(self, lines: bytes, begin: int = 0) -> tuple[RecordBatch | None, int]:
        """The records of the lines from a place on that follow the pattern, and the place of the next line.

        ``None`` if there is no such line, or their steps do not increase; what follows the last line feed is no line.
        """
        text = np.frombuffer(lines, dtype=np.uint8)[begin : lines.rfind(b"\n") + 1]
        most = len(text) // len(self._text) + 1  # no line is shorter than its pattern; one may be half a line
        table = np.full((most, len(_PLACES)), np.nan)
        with interruptible():
            rows, length = _read(text, self._text, self._ends, self._places, _POWERS, table)
        step, end = table[:rows, _PLACES["step"]].astype(np.int64), begin + length
        if not rows or not (step[:-1] < step[1:]).all():
            return None, begin
        made = partial(_parsed, lines[begin:end])
        return RecordBatch(made, step, table[:rows, : len(COLUMNS)], [self._alerts] * rows), end


def _parsed(lines: bytes) -> list[Event]:
    return [orjson.loads(line) for line in lines.split(b"\n")[:-1]]


def _written_by_python(record: Event) -> bytes:
    return json.dumps(record).encode()


@compiled
def _byte(text, at):
    """A byte at a place that is not negative, which is not looked into again: a fifth of the time."""
    return text[np.uintp(at)]


@compiled
def _read(lines, pattern, ends, places, powers, table):
    """Fill the table, a row a line, up to one that does not follow the pattern or has an inexact number.

    Returns the rows and the place behind their lines. The lines end in a line feed, as the pattern does, so that no
    place lies beyond them.
    """
    end = row = 0
    while end < len(lines):
        at, begin = end, 0
        for slot in range(len(ends)):
            for index in range(begin, ends[slot]):
                if _byte(lines, at) != _byte(pattern, index):
                    return row, end
                at += 1
            begin = ends[slot]
            if slot < len(places):
                at, number, is_whole = _number(lines, at, powers)
                if at < 0 or (places[slot] == table.shape[1] - 1 and not (is_whole and number >= 0)):
                    return row, end
                table[row, places[slot]] = number
        end = at
        row += 1
    return row, end


@compiled
def _digits(lines, at, number):
    """The place behind the digits at a place, and a number with these behind it, or one that is too large."""
    while ord("0") <= _byte(lines, at) <= ord("9"):
        number = min(10 * number + (_byte(lines, at) - ord("0")), MAX_STEP)
        at += 1
    return at, number


@compiled
def _number(lines, at, powers):
    """Read a number of JSON: the place behind it, its value, and whether it is written as a whole one.

    The place is -1 if there is no number, or none that is sure to be the nearest double. One below 2^53 is exact as a
    double; its product with an exact power of ten, or its quotient, is then the double that is nearest.
    """
    nothing = -1, 0.0, False
    is_negative = _byte(lines, at) == ord("-")
    begin, exponent, is_whole = at + is_negative, 0, True
    at, mantissa = _digits(lines, begin, 0)
    if at == begin or (at > begin + 1 and _byte(lines, begin) == ord("0")):
        return nothing
    if _byte(lines, at) == ord("."):
        begin, is_whole = at + 1, False
        at, mantissa = _digits(lines, begin, mantissa)
        exponent = begin - at
        if at == begin:
            return nothing
    if _byte(lines, at) == ord("e") or _byte(lines, at) == ord("E"):
        sign, is_whole = _byte(lines, at + 1), False
        begin = at + 1 + (sign == ord("-") or sign == ord("+"))
        at, power = _digits(lines, begin, 0)
        exponent += -power if sign == ord("-") else power
        if at == begin:
            return nothing
    is_exact = mantissa < MAX_STEP and -len(powers) < exponent < len(powers)
    if not is_exact or (is_negative and is_whole and mantissa == 0):  # the integer -0 is 0
        return nothing
    number = mantissa * powers[exponent] if exponent >= 0 else mantissa / powers[-exponent]
    return at, -number if is_negative else number, is_whole
