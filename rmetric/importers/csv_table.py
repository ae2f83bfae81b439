"""CSV (also with semicolons, tabs or bars): a header, then one record a row."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rmetric.batches import NumberedEvent
from rmetric.importers.base import FieldMap, register_importer
from rmetric.importers.csv_cells import Counters, LastDecimals, reader_of, with_lists
from rmetric.importers.rows import Row
from rmetric.importers.tables import imported
from rmetric.log_lines import CUT_OFF, OnDamage, decoded, numbered_lines

DELIMITERS = (",", ";", "\t", "|")
RULE = "|:- "
"""Characters of the line below the header of a Markdown table."""
_SEPARATOR = re.compile(r"sep=[,;\t|]\s*")


@register_importer("csv")
def read_csv(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[NumberedEvent]:
    """A table with a header, one row a line. Lines that begin with ``#`` are comments.

    An empty cell is *not measured*; ``nan`` and ``inf`` are *measured and not finite*. Between semicolons ``2,5`` is
    two and a half, as spreadsheets of many countries write it; a step or an epoch may be ``"1,000"``, or ``1.000``
    beside such a number. A row with another number of cells than the header, and a last one whose last number was cut
    off, are reported and left out.
    """
    return imported(path, lambda report: csv_rows(path, mapping, report), mapping, on_damage)


def delimiter_of(header: str) -> str:
    """The delimiter that a header line has most of.

    >>> delimiter_of("step;loss;learning rate, initial")
    ';'
    """
    return max(DELIMITERS, key=header.count)


def row_values(line: str, delimiter: str) -> list[int | float | str | None] | None:
    """The cells of a line as values; ``None`` if a quote is open.

    >>> row_values('10;2,5;;"a; b"', ";")
    [10, 2.5, None, 'a; b']
    """
    cells = _cells(line, delimiter)
    return None if cells is None else [*map(reader_of(delimiter), cells)]


def without_preamble(lines: Iterable[tuple[int, str, bool]]) -> Iterator[tuple[int, str, bool]]:
    """Numbered lines of a table, and whether they had an end, without comments and Excel's ``sep=;``.

    A comment right before a first row of as many numbers is the header, as ``numpy.savetxt`` writes it.

    >>> [text for _, text, _ in without_preamble([(1, "# mine", True), (2, "# step,loss", True), (3, "1,2.5", True)])]
    [' step,loss', '1,2.5']
    """
    comment, is_first = "", True
    for number, text, is_whole in lines:
        if text.startswith("#"):
            comment = text.lstrip("#")
            continue
        if is_first and _SEPARATOR.fullmatch(text):
            continue
        if is_first and _heads(comment, text):
            yield number - 1, comment, True
        is_first = False
        yield number, text, is_whole


def _heads(comment: str, row: str) -> bool:
    delimiter = delimiter_of(comment)
    names = _cells(comment, delimiter) if delimiter in comment else None
    values = row_values(row, delimiter)
    if names is None or values is None or len(values) != len(names):
        return False
    return not any(isinstance(value, str) for value in values)


def csv_rows(path: Path, mapping: Mapping[str, str], on_damage: OnDamage) -> Iterator[Row]:
    """The rows as they stand there."""
    lines = without_preamble(_lines(path, on_damage))
    _, header, _ = next(lines, (0, "", True))
    delimiter = delimiter_of(header)
    names = [name.strip() for name in _cells(header, delimiter) or ()]
    value_of = reader_of(delimiter)
    counters, decimals = Counters(names, FieldMap(mapping), delimiter), LastDecimals()
    begins, nameless = False, None
    for number, text, is_whole in lines:
        if text == header:
            begins = True
            continue
        if not text.strip(RULE):
            continue
        cells = _cells(text, delimiter)
        if cells is not None and len(cells) == len(names) + 1:
            nameless = _empty_cell(cells) if nameless is None else nameless
            if nameless is not None and not cells[nameless].strip():
                del cells[nameless]
        if cells is None or len(cells) != len(names):
            found = "an open quote" if cells is None else f"{len(cells)} cells"
            on_damage(number, f"{found} where {len(names)} cells are due; skipped")
            continue
        counters.join_thousands(cells)
        if not is_whole and decimals.are_cut(cells[-1]):
            on_damage(number, CUT_OFF)
            continue
        decimals.add(cells[-1])
        named = with_lists(names, cells) if "[" in text else zip(names, cells, strict=True)
        yield Row(number, {name: value_of(cell) for name, cell in named}, begins=begins)
        begins = False


def _empty_cell(cells: list[str]) -> int | None:
    """Place of the only empty cell of a row: a column to which the header gives no name, as in old tables of flair."""
    empty = [place for place, cell in enumerate(cells) if not cell.strip()]
    return empty[0] if len(empty) == 1 else None


def _lines(path: Path, on_damage: OnDamage) -> Iterator[tuple[int, str, bool]]:
    """Numbered lines that are not empty, without their line ends, and whether they had one."""
    for number, line in numbered_lines(path, on_damage):
        yield number, decoded(line, number, on_damage).rstrip("\r\n"), line.endswith(b"\n")


def _cells(text: str, delimiter: str) -> list[str] | None:
    if '"' not in text:
        return text.split(delimiter)
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True))
    except (csv.Error, StopIteration):
        return None
