"""A table once, in four dresses: the screen, Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from rmetric.evaluation.scores import Score
from rmetric.files import write_atomically

Cell = str | int | float | Score | None
UNDEFINED = "n/a"
SCREEN_WIDTH = 120
TEXT_WIDTH = 50
"""Widest text in a column on the screen."""


@dataclass(frozen=True)
class Column:
    """One column."""

    key: str
    """Of the cell in a row, and its heading in the CSV file."""
    title: str
    """Heading, with the unit."""
    digits: int | None = 3
    """After the decimal point; of numbers that are not whole. ``None``: by the size of each number."""
    protocol: Literal["paper", "strict", ""] = ""
    """The protocol it belongs to; such a column is left out when only the other one is asked for."""
    interval: bool = True
    """Whether the intervals of its scores are shown (the CSV file always has them)."""
    leading: bool = False
    """Whether it is repeated where the table goes on below, as the first columns are."""


@dataclass(frozen=True)
class Table:
    """A table with its caption; what is undefined in it carries its reason."""

    name: str
    """File name without ending, such as ``table_3_detectors``."""
    title: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Cell]]
    notes: Sequence[str] = field(default_factory=tuple)
    """Below the table."""
    row_keys: Sequence[str] = field(default_factory=tuple)
    """Columns that say what a row is about. Where two studies share a table, their rows about the same are neighbours;
    without any, the studies stand one below the other."""
    protocol_of_row: str = ""
    """Column that says to which protocol a row belongs, if rows do."""

    def limited_to(self, protocol: str) -> Table:
        """Without the columns and rows of the other protocol (``both``: all of them)."""
        if protocol == "both":
            return self
        columns = [column for column in self.columns if column.protocol in ("", protocol)]
        other = {"paper", "strict"} - {protocol}
        rows = [row for row in self.rows if row.get(self.protocol_of_row) not in other]
        return replace(self, columns=columns, rows=rows)

    def reasons(self) -> list[str]:
        """Why some cells are undefined, each reason once, in the order of its letter."""
        cells = (row.get(column.key) for row in self.rows for column in self.columns)
        found = [cell.reason for cell in cells if isinstance(cell, Score) and not cell.defined and cell.reason]
        return list(dict.fromkeys(found))

    def texts(self) -> list[list[str]]:
        """The cells as they are shown, one list a row."""
        letters = {reason: _letter(index) for index, reason in enumerate(self.reasons())}
        return [[_text(row.get(column.key), column, letters) for column in self.columns] for row in self.rows]

    def footnotes(self) -> list[str]:
        """Reasons with their letters, then the notes."""
        reasons = [f"{UNDEFINED} ({_letter(index)}): {reason}." for index, reason in enumerate(self.reasons())]
        return [*reasons, *self.notes]


def to_markdown(table: Table) -> str:
    """GitHub's Markdown, columns aligned."""
    titles = [_markdown(column.title) for column in table.columns]
    rows = [[_markdown(text) for text in row] for row in table.texts()]
    widths = _widths(titles, rows)
    right = _right_aligned(table)
    rule = ["-" * (width - 1) + ":" if flush else "-" * width for width, flush in zip(widths, right, strict=True)]
    body = [_line(row, widths, right) for row in rows]
    lines = [f"## {table.title}", "", table.caption, ""]
    lines += [f"| {' | '.join(cells)} |" for cells in (_line(titles, widths, right), rule, *body)]
    for note in table.footnotes():
        lines += ["", note]
    return "\n".join(lines) + "\n"


def to_screen(table: Table, width: int = SCREEN_WIDTH) -> str:
    """Plain text in columns; a table wider than the screen goes on below, its leading columns repeated.

    The leading columns are the first one and those of text that follow it. A long text goes on in the next line.
    """
    right = _right_aligned(table)
    titles, rows = [column.title for column in table.columns], _wrapped(table.texts(), right)
    widths = _widths(titles, rows)
    shared = [
        column.leading or (not flush and not column.protocol)
        for flush, column in zip(right, table.columns, strict=True)
    ]
    lead = max(1, [*shared, False].index(False))
    if sum(widths[:lead]) + 2 * lead > width // 2:
        lead = 1
    lines = [table.title, "=" * len(table.title), *textwrap.wrap(table.caption, width), ""]
    for panel in _panels(widths, lead, width):
        sizes, flush = [widths[index] for index in panel], [right[index] for index in panel]
        texts = [[cells[index] for index in panel] for cells in (titles, ["-" * size for size in widths], *rows)]
        lines += ["  ".join(_line(cells, sizes, flush)) for cells in texts]
        lines.append("")
    for note in table.footnotes():
        lines += textwrap.wrap(note, width)
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def _wrapped(rows: Sequence[list[str]], right: Sequence[bool]) -> list[list[str]]:
    """Rows whose texts are at most :data:`TEXT_WIDTH` wide: the rest of a text stands below, in a row of its own."""
    lines: list[list[str]] = []
    for row in rows:
        parts = [
            [text] if flush else textwrap.wrap(text, TEXT_WIDTH) or [""] for text, flush in zip(row, right, strict=True)
        ]
        lines += [list(line) for line in zip_longest(*parts, fillvalue="")]
    return lines


def _panels(widths: Sequence[int], lead: int, width: int) -> list[list[int]]:
    panels: list[list[int]] = []
    room = -1
    for index in range(lead, len(widths)):
        if room < widths[index] + 2:
            panels.append(list(range(lead)))
            room = width - sum(widths[:lead]) - 2 * (lead - 1)
        panels[-1].append(index)
        room -= widths[index] + 2
    return panels or [list(range(lead))]


def to_csv(table: Table) -> str:
    """Numbers at full precision; a score has three columns (value, ``_low``, ``_high``), empty where not known.

    A last column, ``undefined``, says why a score of that row is missing.
    """
    intervals = {
        column.key
        for column in table.columns
        if any(isinstance(cell := row.get(column.key), Score) and cell.has_interval for row in table.rows)
    }
    heading: list[str] = []
    for column in table.columns:
        heading += [column.key, f"{column.key}_low", f"{column.key}_high"] if column.key in intervals else [column.key]
    explain = bool(table.reasons())
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*heading, "undefined"] if explain else heading)
    for row in table.rows:
        cells: list[object] = []
        missing: list[str] = []
        for column in table.columns:
            cell = row.get(column.key)
            score = cell if isinstance(cell, Score) else None
            cells.append(_plain(score.value if score else cell))
            if column.key in intervals:
                cells += [_plain(score.low), _plain(score.high)] if score else ["", ""]
            if score and not score.defined and score.reason:
                missing.append(f"{column.key}: {score.reason}")
        writer.writerow([*cells, "; ".join(missing)] if explain else cells)
    return buffer.getvalue()


def to_latex(table: Table) -> str:
    """A ``table`` environment with booktabs rules, scaled to the line; needs ``booktabs`` and ``graphicx``."""
    alignment = "".join("r" if flush else "l" for flush in _right_aligned(table))
    lines = [
        r"% needs \usepackage{booktabs,graphicx}",
        r"\begin{table}[htbp]",
        r"  \centering",
        rf"  \caption{{{latex_text(table.caption)}}}",
        rf"  \label{{tab:{table.name.replace('_', '-')}}}",
        r"  \resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"  \begin{{tabular}}{{{alignment}}}",
        r"    \toprule",
        "    " + " & ".join(latex_text(column.title) for column in table.columns) + r" \\",
        r"    \midrule",
    ]
    lines += ["    " + " & ".join(map(latex_text, row)) + r" \\" for row in table.texts()]
    lines += [r"    \bottomrule", r"  \end{tabular}}"]
    lines += [rf"  \par\smallskip{{\footnotesize {latex_text(note)}}}" for note in table.footnotes()]
    lines += [r"\end{table}"]
    return "\n".join(lines) + "\n"


def latex_document(tables: Sequence[Table]) -> str:
    """A document of all tables, to be compiled beside their ``.tex`` files."""
    lines = [
        r"\documentclass[10pt]{article}",
        r"\usepackage[T1]{fontenc}",
        r"\usepackage[utf8]{inputenc}",
        r"\usepackage[landscape,margin=15mm]{geometry}",
        r"\usepackage{booktabs,graphicx}",
        r"\begin{document}",
        *(rf"\input{{{table.name}}}" + "\n" + r"\clearpage" for table in tables),
        r"\end{document}",
    ]
    return "\n".join(lines) + "\n"


def write(table: Table, folder: str | Path) -> list[Path]:
    """The table as ``.md``, ``.csv`` and ``.tex``, each written whole or not at all."""
    dresses = {".md": to_markdown, ".csv": to_csv, ".tex": to_latex}
    paths = []
    for ending, render in dresses.items():
        path = Path(folder) / (table.name + ending)
        write_atomically(path, render(table).encode())
        paths.append(path)
    return paths


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    "λ": r"$\lambda$",
    "σ": r"$\sigma$",
    "²": r"$^2$",
    "Δ": r"$\Delta$",
    "×": r"$\times$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "−": r"$-$",
    "·": r"$\cdot$",
    "–": "--",
    "…": r"\dots{}",
    "±": r"$\pm$",
    "→": r"$\to$",
}


def latex_text(text: str) -> str:
    """Text with everything escaped that LaTeX would read as its own.

    >>> latex_text("F1_strict & 95 %, λ > 0")
    'F1\\\\_strict \\\\& 95 \\\\%, $\\\\lambda$ $>$ 0'
    """
    return "".join(_LATEX.get(character, character) for character in text)


def number(value: float, digits: int | None) -> str:
    """A number for people: thousands separated, a true minus sign, whole numbers without a fraction.

    Without ``digits``, three significant ones or so.

    >>> number(1234.5, 1), number(-0.25, 2), number(3, 3), number(float("inf"), 1), number(1234.5, None)
    ('1,234.5', '−0.25', '3', '∞', '1,234')
    """
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if digits is None:
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 3
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"
    if not any(character in "123456789" for character in text):
        text = text.removeprefix("-")
    return text.replace("-", "−")


def _text(cell: Cell, column: Column, letters: Mapping[str, str]) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Score):
        if not cell.defined:
            return f"{UNDEFINED} ({letters[cell.reason]})" if cell.reason else UNDEFINED
        text = number(cell.value, column.digits)
        if column.interval and cell.has_interval:
            text += f" [{number(cell.low, column.digits)}, {number(cell.high, column.digits)}]"
        return text
    if math.isnan(cell):
        return UNDEFINED
    return f"{cell:,g}" if column.digits is None else number(cell, column.digits)


def _plain(cell: Cell) -> object:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    return repr(float(cell)) if isinstance(cell, float) else cell


def _letter(index: int) -> str:
    return chr(ord("a") + index) if index < 26 else f"a{index - 25}"


def _markdown(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


def _right_aligned(table: Table) -> list[bool]:
    def textual(column: Column) -> bool:
        return any(isinstance(row.get(column.key), str) for row in table.rows)

    return [not textual(column) for column in table.columns]


def _widths(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(3, *(len(line[index]) for line in (titles, *rows))) for index in range(len(titles))]


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> list[str]:
    return [
        cell.rjust(width) if flush else cell.ljust(width)
        for cell, width, flush in zip(cells, widths, right, strict=True)
    ]
