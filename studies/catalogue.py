"""Registered tables: what each is called, which studies it needs, and how its rows are made.

A table is one function, decorated with :func:`table`, that makes one study's rows. Several studies are put into one
frame with a column ``study``; what the caption says of them are parameters of a template.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Generic, TypeVar

import pandas as pd

from rmetric.errors import UserError
from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.studies import REAL, SIMULATED, backend_of
from rmetric.reporting.table import Cell, Column, Table
from studies.captions import by_study, each_by_study
from studies.live_results import LiveResults

Source = TypeVar("Source")
Row = Mapping[str, Cell]
STUDY = Column("study", "Study", leading=True)
EVERY = "all"
"""In the column ``study``: the row is the same for all of them."""


@dataclass(frozen=True)
class Inputs:
    """All that tables can be made from."""

    studies: Mapping[str, Evaluator]
    """Name → evaluated study."""
    sets: Mapping[str, Mapping[str, Evaluator]] = field(default_factory=dict)
    """Name of a set beside a study → study → its evaluated set."""
    live: LiveResults = field(default_factory=LiveResults)


@dataclass(frozen=True)
class Part:
    """One study's part of a table."""

    rows: Sequence[Row]
    facts: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the caption: whole sentences, for where studies differ each is said with the study's name."""
    notes: Sequence[str] = ()
    columns: Sequence[Column] = ()
    """Behind those of the description, where the runs decide which there are."""


@dataclass(frozen=True, kw_only=True)
class Description(Generic[Source]):
    """A table that can be made."""

    name: str
    """File name without ending; its number is part of it."""
    title: str
    caption: str
    """Template over the :attr:`Part.facts`."""
    columns: Sequence[Column]
    part: Callable[[Source], Part | None]
    """One study's part; ``None`` if it has none."""
    needs: Callable[[Inputs], Mapping[str, Source]] = attrgetter("studies")
    """Study → what its part is made from, empty if there is nothing to make the table from; left out: all studies."""
    about: Sequence[str] = ()
    """Columns that say what a row is about: rows of several studies about the same are neighbours."""
    shared: bool = False
    """Whether rows that are the same for all studies stand once."""
    extra_set: str = ""
    """Set beside a study that it is made from."""

    @property
    def number(self) -> str:
        """Such as ``3b``; a table without one goes by its name."""
        found = re.match(r"table_(\d+[a-z]?)_", self.name)
        return found[1] if found else self.name

    @property
    def group(self) -> str:
        """Number that it is asked for by: ``3`` for Table 3b."""
        return re.sub(r"(?<=\d)[a-z]$|_full$", "", self.number)

    def table(self, sources: Mapping[str, Source]) -> Table | None:
        """The parts of all studies as one table; ``None`` if none has a part."""
        found = {study: self.part(source) for study, source in sources.items()}
        parts = {study: part for study, part in found.items() if part is not None}
        if not parts:
            return None
        rows = [{STUDY.key: study, **row} for study, part in parts.items() for row in part.rows]
        if self.shared:
            rows = _once(rows, [*parts])
        columns = {column.key: column for part in parts.values() for column in (*self.columns, *part.columns)}
        about = [replace(column, leading=True) for column in columns.values() if column.key in self.about]
        leading = {column.key: column for column in about}
        if len({row[STUDY.key] for row in rows}) > 1:
            leading[STUDY.key] = STUDY
            columns = {**leading, **columns}
        columns |= leading
        return Table(
            self.name,
            f"Table {self.number}: {self.title}" if self.number != self.name else self.title,
            self._caption(parts),
            [*columns.values()],
            _neighbours(rows, self.about),
            each_by_study({study: part.notes for study, part in parts.items()}),
        )

    def _caption(self, parts: Mapping[str, Part]) -> str:
        names = dict.fromkeys(name for part in parts.values() for name in part.facts)
        facts = {name: by_study({study: part.facts.get(name, "") for study, part in parts.items()}) for name in names}
        return " ".join(self.caption.format(**facts).split())


def _neighbours(rows: Sequence[Row], about: Sequence[str]) -> list[Row]:
    """Rows about the same thing beside each other, things in the order in which they come."""
    if not about or not rows:
        return [*rows]
    things = pd.Series([tuple(row.get(key) for key in about) for row in rows])
    return [rows[index] for index in pd.factorize(things)[0].argsort(kind="stable").tolist()]


def _once(rows: Sequence[dict[str, Cell]], studies: Sequence[str]) -> list[dict[str, Cell]]:
    """Rows that all studies share stand once, at the place of the first."""
    known: dict[str, set[Cell]] = {}
    for row in rows:
        known.setdefault(_content(row), set()).add(row[STUDY.key])
    kept: dict[tuple[str, Cell], dict[str, Cell]] = {}
    for row in rows:
        content = _content(row)
        study = EVERY if known[content] == {*studies} and len(studies) > 1 else row[STUDY.key]
        kept.setdefault((content, study), {**row, STUDY.key: study})
    return [*kept.values()]


def _content(row: Row) -> str:
    return repr({key: cell for key, cell in row.items() if key != STUDY.key})


# --- which studies ---------------------------------------------------------------------------------------------------


def real_studies(inputs: Inputs) -> Mapping[str, Evaluator]:
    """Studies of real runs."""
    return {study: ev for study, ev in inputs.studies.items() if backend_of(ev.study) == REAL}


def simulated_and_real(inputs: Inputs) -> Mapping[str, tuple[Evaluator, Evaluator]]:
    """A simulated and a real study, if these are the two."""
    kinds = {backend_of(ev.study): ev for ev in inputs.studies.values()}
    if len(inputs.studies) != 2 or {*kinds} != {SIMULATED, REAL}:
        return {}
    return {f"{SIMULATED} and {REAL}": (kinds[SIMULATED], kinds[REAL])}


# --- the register ----------------------------------------------------------------------------------------------------


class Catalogue:
    """Descriptions by number, in the order in which tables are printed."""

    def __init__(self) -> None:
        self._known: dict[str, Description] = {}

    def add(self, description: Description) -> Description:
        """Register a table; raises ``ValueError`` if its number is taken."""
        if description.number in self._known:
            raise ValueError(
                f"table {description.number} is registered already: {self._known[description.number].name}"
            )
        self._known[description.number] = description
        return description

    def __iter__(self) -> Iterator[Description]:
        return iter(sorted(self._known.values(), key=_place))

    @property
    def numbers(self) -> list[str]:
        """Numbers that tables can be asked for by."""
        return list(dict.fromkeys(description.group for description in self))

    def chosen(self, numbers: Sequence[str] = ()) -> list[Description]:
        """Descriptions by number, ``3`` for 3 to 3d; all if none is given. An unknown number raises ``UserError``."""
        unknown = [number for number in numbers if not any(number in (each.number, each.group) for each in self)]
        if unknown:
            raise UserError(f"unknown table {unknown[0]!r} (known: {', '.join(self.numbers)})")
        return [each for each in self if not numbers or {each.number, each.group} & {*numbers}]


def _place(description: Description) -> tuple[float, str]:
    digits = re.match(r"\d+", description.number)
    return (int(digits[0]), description.number) if digits else (float("inf"), description.number)


CATALOGUE = Catalogue()


def table(
    name: str, title: str, caption: str, columns: Sequence[Column], **options: Any
) -> Callable[[Callable[[Source], Part | None]], Description[Source]]:
    """Register the function below it as what makes one study's part of a table; options as of :class:`Description`."""

    def registered(part: Callable[[Source], Part | None]) -> Description[Source]:
        return CATALOGUE.add(
            Description(name=name, title=title, caption=caption, columns=columns, part=part, **options)
        )

    return registered
