"""What a console log says at each place: lines, tables in text, and reports over several lines."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from rmetric.importers.base import CACHED, FieldMap
from rmetric.importers.commas import with_points
from rmetric.importers.csv_cells import LastDecimals
from rmetric.importers.line_prefix import without_data
from rmetric.importers.line_wording import VERTICALS, two_cells, without_escapes
from rmetric.importers.names import loss_of_data, measures_loss, names_counter, names_epoch
from rmetric.importers.notebook import printed_lines
from rmetric.importers.pairs import LEVELS, LONGEST_ROW, pairs
from rmetric.importers.text_tables import TextTable
from rmetric.log_lines import CUT_OFF, OnDamage, passed_over

MOST_JOINED = 64
"""Lines of an object in braces."""
MESSAGES = ("log", "message", "msg", "textPayload")
_MESSAGE = re.compile(rb'"(?:' + "|".join(MESSAGES).encode() + rb')"\s*:\s*"[^"]*loss', re.IGNORECASE)
_SAYS, _BAR = re.compile(rb"\d|nan|inf|loss|step|epoch|iter|since\s", re.IGNORECASE), b"|"
_WRITTEN_OVER = re.compile(r"\r|\x08+|(?<=[a-z]\])(?=\{)|(?<=(?:it/s|s/it)\])(?=[^\W\d])")
"""Where a bar is drawn again, or a dictionary or another report is printed right behind it."""
_MAY_BE_OVER = "\r", "\x08", "]{", "it/s]", "s/it]"
_KIND = r"(?:(?:local_)?rank|default|worker|node|gpu)[\s:=_-]{0,2}\d{1,5}"
_BEFORE = rf"[\W\dTZ]{{8,32}}(?:(?:{'|'.join(LEVELS)})\b\W{{0,3}})?"
"""A date and a time, and the level of a message, before the process that has written it."""
_SHARE = r"\(\d{1,4}/\d{1,4}\)\s"
_WORKER = re.compile(
    rf"""(?:{_BEFORE}(?:[\w./-]{{1,60}}:\d+\]\s)?(?=\[?{_KIND}|{_SHARE}))?\W{{0,2}}?(?P<who>\[{_KIND}\]:?|(?<!\[){_KIND}[\s:|,]
    |\[\d{{1,5}}(?:,[^\]]{{1,40}})?\]<\w+>:?
    |\[pod/[^\]]{{1,80}}\]
    |\(\w+\s(?:pid=\d+)[^)]{{0,40}}\)
    |{_SHARE}
    |(?P<bare>\d{{1,5}}):\s(?!\s*\d+/\d+\]))           # but in "[2: 40/100]" it is the epoch
    """,
    re.VERBOSE | re.IGNORECASE,
)
_RANK = "rank="
_BY_TURNS = (_RANK, *(f"({digit}" for digit in range(10)))
"""Begin of what may be an epoch, as in ``(1/100) step 3``, or a rank among others, unless the lines take turns."""
_WORD = re.compile(r"\w")
_GROUP = re.compile(rf"[{VERTICALS}](?![^{VERTICALS}]*(?:=|\b\d))[^{VERTICALS}]+[{VERTICALS}]\s*[{VERTICALS}]\s*")
"""A row of two cells with a name alone, ``| train/ |   |``: the group of the rows below. ``| epoch 1 | |`` is none."""
_HEADING = re.compile(r"(?:[A-Z]+:[\w.]+:)?[^\w:]*(?P<words>(?:[A-Za-z]+\s+){0,2}[A-Za-z]+\s*:)\s*")
"""A line such as ``Test results:`` above a line with values, also after what Python's logging puts before it."""


@dataclass(slots=True)
class Line:
    """A line with pairs, or several that belong together."""

    number: int
    text: str
    found: dict[str, Any]
    worker: str = ""
    """Which of several processes has written it, if it begins with that."""
    pieces: list[Line] = field(default_factory=list)
    """The single lines, if there are several."""
    begins: bool = False
    """Whether it is the first row of a table whose names stand above it once more."""
    epoch: dict[str, Any] = field(default_factory=dict)
    """The epoch of the first of several lines."""


@dataclass
class Workers:
    """Processes that have written the lines of a pattern."""

    lines: Counter[str] = field(default_factory=Counter)
    first: str = ""
    turns: int = 0
    """Lines that another one has written than the line before."""
    _latest: str = ""

    def add(self, worker: str) -> None:
        """The next line."""
        self.first = self.first or worker
        self.turns += worker != self._latest
        self._latest = worker
        self.lines[worker] += 1

    def are_several(self, is_counted: bool) -> bool:
        """Whether they are several processes; ``is_counted``: the lines state a counter."""
        if len(self.lines) < 2:
            return False
        take_turns = self.first.startswith(_BY_TURNS)
        if not take_turns and not self.first[0].isdigit():
            return True
        comes_again = 2 * len(self.lines) <= self.lines.total()
        in_turn = not take_turns or 2 * self.turns > self.lines.total()
        are_ranks = not self.first.startswith(_RANK) or {*self.lines} == {f"{_RANK}{n}" for n in range(len(self.lines))}
        return is_counted and comes_again and in_turn and are_ranks


def console_lines(
    path: Path, on_damage: OnDamage, fields: FieldMap, has_decimal_commas: bool = False, prefix: Set[str] = frozenset()
) -> Iterator[Line]:
    """The lines with pairs; what a progress bar wrote over is a line of its own.

    A whole number that is named after its data alone (``train: 1457``) tells how much there is, and is left out.

    Parameters
    ----------
    prefix
        Tokens that tell no data (:func:`~rmetric.importers.line_prefix.tokens_before_reports`).
    """
    for line in _blocks(_single(path, on_damage, fields, has_decimal_commas, prefix), fields):
        for one in (line, *line.pieces):
            whole = [name for name, value in one.found.items() if type(value) is int]
            for name in whole:
                if loss_of_data(name, fields):
                    del one.found[name]
        yield line


def console_texts(path: Path) -> Iterator[str]:
    """The lines as they stand there, but for colours; what a progress bar wrote over is a line of its own."""
    return (part for _, text in _objects(_texts(path, passed_over)) for part in _parts(text))


def _parts(text: str) -> list[str]:
    parts = _WRITTEN_OVER.split(text) if any(sign in text for sign in _MAY_BE_OVER) else [text]
    return [*map(without_escapes, parts)]


def _single(
    path: Path, on_damage: OnDamage, fields: FieldMap, has_decimal_commas: bool, prefix: Set[str]
) -> Iterator[Line | None]:
    """Single lines; ``None`` for one without pairs that ends a block. A heading above a line may say of what it is."""
    table = TextTable(fields)
    heading, before = "", -1  # no line is below one that is not there
    for number, text in _objects(_texts(path, on_damage)):
        below, before = number == before + 1, number
        if below and _GROUP.fullmatch(text):  # no rule parts it from the row above
            continue
        if not text:
            yield None
            continue
        parts = _parts(with_points(text) if has_decimal_commas else text)
        for part in _last_rows(parts, table) if len(parts) > 1 else parts:
            worker = _WORKER.match(part)
            said = part if worker is None or worker["bare"] else part[worker.end() :]
            said = without_data(said, prefix) if prefix else said
            of_table = table.row(part)
            found = of_table or pairs(heading + said)
            is_heading = None if found else _HEADING.fullmatch(part)
            heading = f"{is_heading['words']} " if is_heading else ""
            if found:
                rank = f"{_RANK}{found['rank']}" if type(found.get("rank")) is int else ""
                who = worker["who"].strip() if worker else rank
                yield Line(number, part, found, who, begins=table.is_first(of_table))
            elif not table.begins(part) and part[:1].strip() and _WORD.search(part):
                yield None


def _last_rows(parts: list[str], table: TextTable) -> list[str]:
    """Parts of a line without the rows of a table that later ones have written over, as one does that fills up."""
    rows = [place for place, part in enumerate(parts) if table.row(part)]
    written_over = {*rows[:-1]}
    return [part for place, part in enumerate(parts) if place not in written_over]


def _texts(path: Path, on_damage: OnDamage) -> Iterator[tuple[int, str]]:
    """Lines that may say something; empty for one without a number that begins with a word."""
    decimals = LastDecimals()
    for number, line in printed_lines(path, on_damage):
        last_word = line.rstrip().rpartition(b" ")[2].decode(errors="replace")
        if not line.endswith(b"\n") and decimals.are_cut(last_word):
            on_damage(number, CUT_OFF)
            continue
        decimals.add(last_word)
        if b"\0" in line:
            line = line.replace(b"\0", b"")  # a block that was never written: the machine went down
        if b"#01" in line:
            line = line.replace(b"#011", b"\t").replace(b"#015", b"\r")  # as syslog writes these
        if _SAYS.search(line) or line.startswith(_BAR) or line.rstrip().endswith(b":"):
            yield number, (_message(line) or line).decode(errors="replace").rstrip("\n")
        elif line[:1].isalnum():
            yield number, ""


def _message(line: bytes) -> bytes:
    """The text that an object on a line holds, if that tells of a loss: what a container's log makes of a line."""
    if not line.startswith(b"{") or not _MESSAGE.search(line):
        return b""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return b""
    texts = (record.get(name) for name in MESSAGES) if isinstance(record, dict) else ()
    return next((text.encode(errors="replace") for text in texts if isinstance(text, str) and "loss" in text), b"")


def _objects(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The lines; an object in braces over several of them, without another one within, as one."""
    rest = iter(lines)
    waiting: deque[tuple[int, str]] = deque()
    while True:
        head = waiting.popleft() if waiting else next(rest, None)
        if head is None:
            return
        if head[1].count("{") != head[1].count("}") + 1 or not head[1].rstrip().endswith(("{", ",")):
            yield head
            continue
        parts = [head]
        while len(parts) < MOST_JOINED and (following := waiting.popleft() if waiting else next(rest, None)):
            parts.append(following)
            if "{" in following[1] or "}" in following[1]:
                break
        if "}" in parts[-1][1] and "{" not in parts[-1][1]:
            yield head[0], " ".join(text.strip() for _, text in parts)
        else:
            yield head
            waiting.extendleft(reversed(parts[1:]))


def _blocks(lines: Iterable[Line | None], fields: FieldMap) -> Iterator[Line]:
    """The lines; those that go on with one that states a counter and no loss, and rows of two cells, as one.

    A line goes on if it is indented, states no counter and nothing that has been said already.
    """
    held: Line | None = None
    is_row = counts = False

    @lru_cache(CACHED)
    def stated(names: tuple[str, ...]) -> tuple[bool, bool]:
        """Whether a counter is among them, and whether a loss is."""
        return any(names_counter(name, fields) for name in names), any(map(measures_loss, names))

    for line in lines:
        if line is None:
            if held is not None:
                yield held
            held = None
            continue
        is_row_too = two_cells(line.text) is not line.text
        states_counter, states_loss = stated(tuple(line.found))
        if held is not None and len(held.found) < LONGEST_ROW and not held.found.keys() & line.found.keys():
            goes_on = counts and not states_counter and not line.text[:1].strip()
            if (is_row and is_row_too) or (goes_on and not is_row):
                if not held.pieces:
                    held.pieces = [replace(held, pieces=[])]
                held.epoch = held.epoch or {name: held.found[name] for name in held.found if names_epoch(name)}
                held.pieces.append(line)
                held.found = held.found | line.found
                continue
        if held is not None:
            yield held
        held, is_row, counts = line, is_row_too, states_counter and not states_loss
    if held is not None:
        yield held
