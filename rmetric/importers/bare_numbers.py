"""Numbers without names: in a file that is named after them (``loss.txt``, as ``numpy.savetxt`` writes it), or in
columns that a mapping names by their places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rmetric.batches import NumberedEvent
from rmetric.importers.base import LOOKED_AT, FieldMap, register_importer
from rmetric.importers.names import COUNTER_WORDS, means_loss
from rmetric.importers.rows import Row
from rmetric.importers.tables import imported
from rmetric.importers.text_tables import values_of
from rmetric.log_lines import OnDamage, numbered_lines

_BETWEEN = re.compile(r"[\s,;:\[\]\"']+")
_COUNTER = re.compile(rf"\s*(?:{'|'.join(COUNTER_WORDS)})\b[\s:=]*(?=\d+\W)", re.IGNORECASE)
"""The only word that a line may hold: ``epoch 52: 279.29``."""
_GAP = re.compile(r"\s*[,;|]\s*|\s+")
_CELL = re.compile(r"(?:[-+]?\.?\d\S*|[-+]?(?:nan|inf))?", re.IGNORECASE)


@register_importer("numbers")
def read_numbers(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """Records of a file of losses: a line each, alone or after its step, or all in one line.

    With a mapping to places, such as ``training_loss=6``, those of a table without names; the first column is 1.
    """
    rows = _rows_by_place if are_places(mapping) else _rows
    return imported(path, lambda report: rows(path, report), mapping, on_damage)


def are_places(mapping: Mapping[str, str] | None) -> bool:
    """Whether a mapping names columns by their places."""
    return bool(mapping) and all(map(str.isdecimal, (mapping or {}).values()))


def nameless_cells(lines: Sequence[str]) -> list[str]:
    """The first row of a table without names, of which all cells begin as numbers do; empty if the lines are none.

    >>> nameless_cells([" 0/149 0.461G 0.07", " 1/149 0.461G nan"]), nameless_cells(["step,loss", "1,2.5"])
    (['0/149', '0.461G', '0.07'], [])
    """
    rows = [_GAP.split(line.strip()) for line in lines[:LOOKED_AT] if not line.startswith("#")]
    return rows[0] if rows and all(_CELL.fullmatch(cell) for row in rows for cell in row) else []


def are_bare_numbers(path: Path, lines: Sequence[str], mapping: Mapping[str, str] | None) -> bool:
    """Whether a file is named after a loss, and its first lines hold one number each, or a step and a number."""
    if not means_loss(path.stem, FieldMap(mapping or {})):
        return False
    lines = [line for line in lines if line.strip(" []")]  # a list may be empty
    if len(lines) == 1:
        return lines[0].count("[") < 2 and len(_numbers(lines[0])) > 2  # of lists in a list nothing is known
    numbers = [_numbers(line) for line in lines[:-1]]  # the last may be cut off
    return all(len(of_line) == 1 for of_line in numbers) or all(
        len(of_line) == 2 and of_line[0].is_integer() for of_line in numbers
    )


def _rows(path: Path, on_damage: OnDamage) -> Iterator[Row]:
    for number, line in numbered_lines(path, on_damage):
        numbers = _numbers(line.decode(errors="replace"))
        if len(numbers) == 2 and numbers[0].is_integer():
            yield Row(number, {"step": int(numbers[0]), path.stem: numbers[1]})
        elif numbers:
            yield from (Row(number, {path.stem: value}) for value in numbers)
        elif line.strip(b" []\r\n"):
            on_damage(number, "no number; skipped")


def _rows_by_place(path: Path, on_damage: OnDamage) -> Iterator[Row]:
    for number, line in numbered_lines(path, on_damage):
        if not line.startswith(b"#"):
            cells = _GAP.split(line.decode(errors="replace").strip())
            yield Row(number, values_of((str(place), cell) for place, cell in enumerate(cells, 1)))


def _numbers(line: str) -> list[float]:
    """The numbers of a line; none if it holds anything else."""
    try:
        return [float(token) for token in _BETWEEN.split(_COUNTER.sub("", line, count=1)) if token]
    except ValueError:
        return []
