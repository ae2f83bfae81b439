"""Render a table as text, Markdown, CSV or LaTeX."""

from __future__ import annotations

import math
import shutil
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import pandas as pd

from rmetric.evaluation.scores import Score
from rmetric.files import write_atomically

Cell = str | int | float | Score | None
UNDEFINED = "n/a"
SCREEN_WIDTH = 120
TEXT_WIDTH = 50
"""Widest text in a column on the screen."""
LATEX_PACKAGES = "array,booktabs,graphicx,longtable"
BREAKS_FROM = 40
"""Rows from which a table breaks over pages in LaTeX: scaled to one, nobody could read it."""
LINE = 160
"""Characters of a line of such a table in the smaller type, on A4 lying down; above it, in the smallest."""


@dataclass(frozen=True)
class Column:
    key: str
    """Of the cell in a row, and its heading in the CSV file."""
    title: str
    """Heading, with the unit."""
    digits: int | None = 3
    """After the decimal point; of numbers that are not whole. ``None``: by the size of each number."""
    protocol: Literal["paper", "strict", ""] = ""
    """The protocol it belongs to; empty: both, or none."""
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

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The cells; a row that lacks a column has ``None`` there."""
        keys = [column.key for column in self.columns]
        return pd.DataFrame([[row.get(key) for key in keys] for row in self.rows], columns=keys, dtype=object)

    def reasons(self) -> list[str]:
        """Why some cells are undefined, each reason once, in the order of its letter."""
        cells = (cell for row in self.frame.itertuples(index=False) for cell in row)
        found = [cell.reason for cell in cells if isinstance(cell, Score) and not cell.defined and cell.reason]
        return list(dict.fromkeys(found))

    def shown(self, escape: Callable[[str], str] = str) -> pd.DataFrame:
        """Titles and cells as they are shown, all of them text."""
        letters = {reason: _letter(index) for index, reason in enumerate(self.reasons())}
        texts = [
            [escape(_text(cell, column, letters)) for cell, column in zip(row, self.columns, strict=True)]
            for row in self.frame.itertuples(index=False)
        ]
        return pd.DataFrame(texts, columns=[escape(column.title) for column in self.columns], dtype=object)

    def alignment(self) -> list[str]:
        """``left`` for a column that has texts, ``right`` for one of numbers."""
        return ["left" if any(isinstance(cell, str) for cell in self.frame[key]) else "right" for key in self.frame]

    def footnotes(self) -> list[str]:
        """Reasons with their letters, then the notes."""
        reasons = [f"{UNDEFINED} ({_letter(index)}): {reason}." for index, reason in enumerate(self.reasons())]
        return [*reasons, *self.notes]


def to_markdown(table: Table) -> str:
    """GitHub's Markdown, columns aligned."""
    body = _body(table.shown(_markdown), table.alignment(), "pipe")
    return "\n\n".join([f"## {table.title}", table.caption, body, *table.footnotes()]) + "\n"


def to_screen(table: Table, width: int = SCREEN_WIDTH) -> str:
    """Plain text in columns; a table wider than the screen goes on below, its leading columns repeated.

    The leading columns are those that are marked as such where the widest other one fits beside them; else the first
    one and those of text that follow it, if they leave half of the screen. A long text goes on in the next line.
    """
    shown, alignment = table.shown(_wrapped), table.alignment()
    lines = [table.title, "=" * len(table.title), *textwrap.wrap(table.caption, width), ""]
    for panel in _panels(table, shown, width):
        body = _body(shown.iloc[:, panel], [alignment[index] for index in panel], "simple")
        lines += [*body.splitlines(), ""]
    for note in table.footnotes():
        lines += textwrap.wrap(note, width)
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def to_terminal(table: Table) -> str:
    """:func:`to_screen`, as wide as the terminal if there is one."""
    return to_screen(table, shutil.get_terminal_size((SCREEN_WIDTH, 50)).columns)


def _body(shown: pd.DataFrame, alignment: Sequence[str], style: str) -> str:
    """The cells in a style of the package ``tabulate``, numbers as they were written."""
    return shown.to_markdown(None, index=False, tablefmt=style, colalign=alignment, disable_numparse=True)


def _panels(table: Table, shown: pd.DataFrame, width: int) -> list[list[int]]:
    """Columns that fit on the screen beside each other, the leading ones first in each panel."""
    alignment = table.alignment()
    widths = [_width(column.title, shown.iloc[:, index]) for index, column in enumerate(table.columns)]
    shared = [
        column.leading or (side == "left" and not column.protocol)
        for side, column in zip(alignment, table.columns, strict=True)
    ]
    lead = max(1, [*shared, False].index(False))
    marked = [*(column.leading for column in table.columns), False].index(False)
    if sum(widths[:lead]) > width // 2:
        fits = sum(widths[:marked]) + max(widths[marked:], default=0) <= width + 2
        lead = max(1, marked) if fits else 1
    panels: list[list[int]] = []
    room = -1
    for index in range(lead, len(widths)):
        if room < widths[index]:
            panels.append(list(range(lead)))
            room = width + 2 - sum(widths[:lead])
        panels[-1].append(index)
        room -= widths[index]
    return panels or [list(range(lead))]


def _width(title: str, cells: pd.Series[str]) -> int:
    """Width of a column on the screen, with the space behind it; ``tabulate`` leaves two beside a title."""
    return max(len(title) + 2, *(len(line) for text in cells for line in text.splitlines()), 0) + 2


def to_csv(table: Table) -> str:
    """Numbers at full precision; a score has three columns (value, ``_low``, ``_high``), empty where not known.

    A last column, ``undefined``, says why a score of that row is missing.
    """
    parts: dict[str, list[object]] = {}
    for key, cells in table.frame.items():
        scores = [cell if isinstance(cell, Score) else None for cell in cells]
        parts[str(key)] = [score.value if score else cell for score, cell in zip(scores, cells, strict=True)]
        if any(score.has_interval for score in scores if score):
            parts[f"{key}_low"] = [score.low if score else None for score in scores]
            parts[f"{key}_high"] = [score.high if score else None for score in scores]
    if table.reasons():
        parts["undefined"] = ["; ".join(_missing(row)) for _, row in table.frame.iterrows()]
    return pd.DataFrame(parts, dtype=object).to_csv(index=False, lineterminator="\n")


def _missing(row: pd.Series) -> list[str]:
    scores = [(key, cell) for key, cell in row.items() if isinstance(cell, Score)]
    return [f"{key}: {score.reason}" for key, score in scores if not score.defined and score.reason]


def to_latex(table: Table) -> str:
    """A ``table`` environment with booktabs rules, scaled to the page; a ``longtable`` from 40 rows on.

    The first line says which packages it needs.
    """
    lines = _long_latex(table) if len(table.rows) >= BREAKS_FROM else _floating_latex(table)
    return "\n".join([rf"% needs \usepackage{{{LATEX_PACKAGES}}}", *lines]) + "\n"


def _floating_latex(table: Table) -> list[str]:
    body = _body(table.shown(latex_text), table.alignment(), "latex_raw")
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        body = body.replace(r"\hline", rule, 1)
    return [
        r"\begin{table}[htbp]",
        r"  \centering",
        rf"  {_latex_caption(table)}",
        r"  \resizebox*{!}{\ifdim\totalheight>0.65\textheight 0.65\textheight\else\totalheight\fi}{%",
        r"  \resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        body + "}}",
        *(rf"  \par\smallskip{{\footnotesize {latex_text(note)}}}" for note in table.footnotes()),
        r"\end{table}",
    ]


def _latex_caption(table: Table, size: str = "") -> str:
    return rf"\caption{{{size}{latex_text(table.caption)}}}\label{{tab:{table.name.replace('_', '-')}}}"


def _long_latex(table: Table) -> list[str]:
    """Breaks over pages, which a box that is scaled cannot: its columns share the line, and cells may wrap instead."""
    shown = table.shown(latex_text)
    heading = [" & ".join(shown.columns) + r" \\", r"\midrule"]
    widths = _latex_widths(table)
    line = max(LINE, sum(widths))
    size = r"\tiny" if line > LINE else r"\scriptsize"
    sides = {"left": "right", "right": "left"}
    columns = [
        rf"  >{{\ragged{sides[side]}\arraybackslash}}p{{\dimexpr {width / line:.4f}\linewidth-2\tabcolsep\relax}}"
        for side, width in zip(table.alignment(), widths, strict=True)
    ]
    return [
        rf"{{{size}\setlength{{\tabcolsep}}{{2pt}}\setlength{{\LTcapwidth}}{{\linewidth}}",
        r"\begin{longtable}{",
        *columns,
        "}",
        _latex_caption(table, r"\footnotesize ") + r" \\",
        r"\toprule",
        *heading,
        r"\endfirsthead",
        r"\toprule",
        *heading,
        r"\endhead",
        r"\bottomrule",
        r"\endfoot",
        *(" & ".join(row) + r" \\" for row in shown.itertuples(index=False)),
        r"\end{longtable}}",
        *(rf"\par\smallskip{{\footnotesize {latex_text(note)}}}" for note in table.footnotes()),
    ]


def _latex_widths(table: Table) -> list[int]:
    """Characters that each column asks for, with its space: a word of its title stays whole, long texts wrap."""

    def width(text: str) -> int:
        return len(text) + sum(map(str.isupper, text)) // 2  # a capital is half as wide again

    return [
        3 + max(*map(width, str(title).split()), min(max(map(width, cells), default=0), TEXT_WIDTH), 1)
        for title, cells in table.shown().items()
    ]


def latex_document(names: Iterable[str]) -> str:
    """A document of all tables of these names, to be compiled beside their ``.tex`` files."""
    lines = [
        r"\documentclass[10pt]{article}",
        r"\usepackage[T1]{fontenc}",
        r"\usepackage[utf8]{inputenc}",
        r"\usepackage[landscape,margin=15mm]{geometry}",
        rf"\usepackage{{{LATEX_PACKAGES}}}",
        r"\begin{document}",
        *(rf"\input{{{name}}}" + "\n" + r"\clearpage" for name in names),
        r"\end{document}",
    ]
    return "\n".join(lines) + "\n"


FORMATS: Mapping[str, Callable[[Table], str]] = {".md": to_markdown, ".csv": to_csv, ".tex": to_latex}
"""Ending of a written table's file → what makes its text."""


def write(table: Table, folder: str | Path) -> list[Path]:
    """The table in each of :data:`FORMATS`, each file written whole or not at all."""
    paths = []
    for ending, render in FORMATS.items():
        path = Path(folder) / (table.name + ending)
        write_atomically(path, render(table).encode())
        paths.append(path)
    return paths


_LATEX = str.maketrans(
    {
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
        "–": r"\textendash{}",
        "…": r"\dots{}",
        "±": r"$\pm$",
        "→": r"$\to$",
        "√": r"$\sqrt{}$",
        "∞": r"$\infty$",
        "β": r"$\beta$",
        "Σ": r"$\Sigma$",
        "′": r"$'$",
        "³": r"$^3$",
        "°": r"$^\circ$",
        "`": r"\textasciigrave{}",
    }
)
_T1 = {*map(chr, range(0xC0, 0x17F))} - {*"×÷ĦħĸĿŀŉŦŧ"} | {*"¡£«»¿‘’“”„—"}
"""Beyond ASCII, what the font encoding of the document has as it is."""


def latex_text(text: str) -> str:
    """Text with everything escaped that LaTeX would read as its own; what it cannot write stands by its number.

    >>> latex_text("F1_strict & 95 %, λ > 0"), latex_text("--out ☃")
    ('F1\\\\_strict \\\\& 95 \\\\%, $\\\\lambda$ $>$ 0', '-{}-out U+2603')
    """
    known = "".join(c if c.isascii() or ord(c) in _LATEX or c in _T1 else f"U+{ord(c):04X}" for c in text)
    return known.translate(_LATEX).replace("--", "-{}-")


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
    return f"{cell:,g}" if column.digits is None and math.isfinite(cell) else number(cell, column.digits)


def _letter(index: int) -> str:
    return chr(ord("a") + index) if index < 26 else f"a{index - 25}"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, TEXT_WIDTH)


def _markdown(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")
