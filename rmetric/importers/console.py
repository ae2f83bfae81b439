"""Console output of any training program: lines that repeat ``name value`` pairs.

No framework is known by name. A line is a set of pairs; a pattern of names that repeats is one of the program's
reports, and the rest (settings, source code, tables) is left aside. What the names mean is decided as in every format.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rmetric.errors import UserError
from rmetric.importers.base import FieldMap, register_importer
from rmetric.importers.columns import SURVEYED_ROWS, Row, epoch_of
from rmetric.importers.commas import DecimalMarks, with_points
from rmetric.importers.names import meanings, names_epoch
from rmetric.importers.pairs import pairs
from rmetric.importers.tables import imported
from rmetric.log_reader import NumberedEvent, OnDamage, numbered_lines

REPEATED = 2
"""Lines from which a pattern of names is one of the program's reports."""
MAX_PATTERNS = 4096
_LOSSES = ("training_loss", "validation_loss")
_MEASURED = frozenset(("training_loss", "grad_norm"))
_SHOWN = 3
DOUBT = "a decimal comma, or two numbers? It is not read, nor are others of which the log does not tell"
_DIGIT = re.compile(rb"\d|nan|inf", re.IGNORECASE)


@register_importer("console")
def read_console(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """Records of a console log; several runs one after the other become several runs.

    Lines without pairs, and patterns that do not repeat (but for evaluations), are passed over in silence. A number of
    ours with a comma of which the log does not say what it is, is left out; the first one is reported.
    Raises :class:`UserError` if no line reports a loss, with the patterns that repeat.
    """
    patterns = Patterns.of(path, mapping)
    if not patterns.hold_a_loss:
        raise UserError(f"{path} reports no loss ({patterns.seen or 'no line repeats name value pairs'})")
    return imported(path, lambda report: patterns.rows(path, report), mapping, on_damage)


def is_console(path: Path, mapping: Mapping[str, str] | None = None) -> bool:
    """Whether lines of a file report a loss."""
    return Patterns.of(path, mapping or {}).hold_a_loss


def what_repeats(path: Path) -> str:
    """The names that lines of a file report again and again, for a message; empty if there are none."""
    return Patterns.of(path, {}).seen


class Patterns:
    """The patterns of a console log: which names its lines report together, and how often."""

    def __init__(self, fields: FieldMap) -> None:
        self._fields = fields
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._holds: dict[tuple[str, ...], frozenset[str]] = {}
        self._marks = DecimalMarks()

    @classmethod
    def of(cls, path: Path, mapping: Mapping[str, str]) -> Patterns:
        """Patterns of the first lines."""
        patterns = cls(FieldMap(mapping))
        for _, text, found in itertools.islice(_lines(path, _ignore), SURVEYED_ROWS):
            names = tuple(found)
            if patterns._meant(names):
                patterns._marks.add(text)
            if names in patterns._counts or len(patterns._counts) < MAX_PATTERNS:
                patterns._counts[names] += 1
        return patterns

    @property
    def hold_a_loss(self) -> bool:
        """Whether one of those that repeat holds a loss."""
        return any(
            count >= REPEATED and any(ours in _LOSSES for ours in self._meant(names))
            for names, count in self._counts.items()
        )

    @property
    def seen(self) -> str:
        """The most frequent ones in words."""
        repeated = [(names, count) for names, count in self._counts.most_common(_SHOWN) if count >= REPEATED]
        return "; ".join(
            f"{count:,} lines report {', '.join(repr(name) for name in names[:6])}" for names, count in repeated
        )

    def rows(self, path: Path, on_damage: OnDamage) -> Iterator[Row]:
        """The reports of a log. A line without an epoch belongs to the one that a line before it has announced."""
        late: Counter[tuple[str, ...]] = Counter()
        epoch: dict[str, Any] = {}
        is_told = False
        for line, _, found in _lines(path, on_damage, self._marks.are_commas):
            names = tuple(found)
            meant = self._meant(names)
            count = self._counts.get(names, 0)
            if not count and len(late) < MAX_PATTERNS:
                late[names] += 1
                count = late[names]
            if "validation_loss" in meant or (count >= REPEATED and meant & _MEASURED):
                doubtful = self._doubtful(found)
                if doubtful and not is_told:
                    is_told = True
                    on_damage(line, f"{doubtful[0]} is {found[doubtful[0]]!r}: {DOUBT}")
                found = {name: value for name, value in found.items() if name not in doubtful} if doubtful else found
                yield Row(line, epoch | found if epoch and epoch_of(found) is None else found)
            elif count >= REPEATED and not meant:
                epoch = {name: value for name, value in found.items() if names_epoch(name)} or epoch

    def _doubtful(self, found: Mapping[str, Any]) -> list[str]:
        """Names of ours under which a number with a comma stands that may be a decimal one, or part two numbers."""
        return [name for name, value in found.items() if type(value) is str and meanings(name, self._fields)]

    def _meant(self, names: tuple[str, ...]) -> frozenset[str]:
        """Our names that a pattern's may stand for."""
        meant = self._holds.get(names)
        if meant is None:
            meant = frozenset(ours for name in names for ours, _ in meanings(name, self._fields) if ours != "step")
            if len(self._holds) < MAX_PATTERNS:
                self._holds[names] = meant
        return meant


def _lines(
    path: Path, on_damage: OnDamage, has_decimal_commas: bool = False
) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Lines with pairs, and these. What a progress bar wrote over is a line of its own."""
    for number, line in numbered_lines(path, on_damage):
        if not _DIGIT.search(line):
            continue
        text = line.decode(errors="replace")
        for part in text.split("\r") if "\r" in text else (text,):
            found = pairs(with_points(part) if has_decimal_commas else part)
            if found:
                yield number, part, found


def _ignore(line: int, message: str) -> None:
    """Pass over damage before the log is read."""
