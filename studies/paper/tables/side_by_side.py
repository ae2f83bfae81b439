"""One table of the same table of several studies: rows about the same thing are neighbours, each naming its study."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from rmetric.reporting.table import Cell, Column, Table

STUDY = Column("study", "Study", leading=True)
_SENTENCES = re.compile(r"(?<=\.) (?=[A-Z0-9(λσΔ])")


def side_by_side(tables: Mapping[str, Table]) -> Table:
    """The tables of several studies as one.

    A column ``Study`` follows the columns that say what a row is about, or leads where a table names none. Sentences of
    the captions that all studies share stand once; the others name theirs.

    Parameters
    ----------
    tables
        Study → its table; all of the same name. A single one is given back as it is.
    """
    first = next(iter(tables.values()))
    if len(tables) == 1:
        return first
    caption = woven({study: table.caption for study, table in tables.items()})
    notes = _notes({study: table.notes for study, table in tables.items()})
    keys = list(first.row_keys)
    columns = _columns(list(tables.values()))
    leading = [replace(column, leading=True) for column in columns if column.key in keys]
    others = [column for column in columns if column.key not in keys]
    return replace(
        first,
        caption=caption,
        columns=[*leading, STUDY, *others],
        rows=_rows(tables, keys),
        notes=notes,
        row_keys=(*keys, STUDY.key),
    )


def same_for_all(tables: Mapping[str, Table]) -> Table:
    """The first of several tables whose cells do not depend on the study, with the notes of all."""
    first = next(iter(tables.values()))
    return replace(first, notes=_notes({study: table.notes for study, table in tables.items()}))


def _rows(tables: Mapping[str, Table], keys: Sequence[str]) -> list[dict[str, Cell]]:
    named = [(study, row) for study, table in tables.items() for row in table.rows]
    if keys:
        about = [tuple(row.get(key) for key in keys) for _, row in named]
        place = {key: index for index, key in enumerate(dict.fromkeys(about))}
        named = [named[index] for index in sorted(range(len(named)), key=lambda index: place[about[index]])]
    return [{STUDY.key: study, **row} for study, row in named]


def _columns(tables: Sequence[Table]) -> list[Column]:
    """Columns of any of the tables; a heading that differs names both."""
    known: dict[str, Column] = {}
    for table in tables:
        for column in table.columns:
            before = known.setdefault(column.key, column)
            known[column.key] = replace(before, title=_both(before.title, column.title))
    return list(known.values())


def _both(one: str, other: str) -> str:
    """A heading of two: what they share once, the rest with a slash.

    >>> _both("Recall of loss_spike, strict", "Recall of robust_z, strict")
    'Recall of loss_spike / robust_z, strict'
    """
    if one == other:
        return one
    mine, theirs = re.split(r"(\W+)", one), re.split(r"(\W+)", other)
    begin = _equal(mine, theirs)
    end = _equal(mine[begin:][::-1], theirs[begin:][::-1])
    middles = ["".join(words[begin : len(words) - end]) for words in (mine, theirs)]
    return "".join(mine[:begin]) + " / ".join(middles) + "".join(mine[len(mine) - end :])


def _equal(one: Sequence[str], other: Sequence[str]) -> int:
    """How many of the first words are the same."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def woven(texts: Mapping[str, str]) -> str:
    """Texts of several studies as one: the sentences that all share once, the others with their study's name.

    >>> woven({"simulated": "Both. 12 runs. End.", "real": "Both. 16 runs. End."})
    'Both. Simulated: 12 runs. Real: 16 runs. End.'
    """
    sentences = {study: _SENTENCES.split(text) for study, text in texts.items()}
    first = next(iter(sentences.values()))
    common = [sentence for sentence in first if all(sentence in each for each in sentences.values())]
    rests = {study: _between(each, common) for study, each in sentences.items()}
    parts: list[str] = []
    for place in range(len(common) + 1):
        parts += [f"{heading(study)}: {' '.join(rest[place])}" for study, rest in rests.items() if rest[place]]
        parts += common[place : place + 1]
    return " ".join(parts)


def _between(sentences: Sequence[str], common: Sequence[str]) -> list[list[str]]:
    """The sentences before the first common one, between each two, and after the last."""
    rests: list[list[str]] = [[]]
    for sentence in sentences:
        if len(rests) <= len(common) and sentence == common[len(rests) - 1]:
            rests.append([])
        else:
            rests[-1].append(sentence)
    return rests + [[] for _ in range(len(common) + 1 - len(rests))]


def _notes(notes: Mapping[str, Sequence[str]]) -> list[str]:
    known = list(dict.fromkeys(note for each in notes.values() for note in each))
    whose = {note: [study for study, each in notes.items() if note in each] for note in known}
    return [note if len(whose[note]) == len(notes) else f"{heading(whose[note][0])}: {note}" for note in known]


def heading(study: str) -> str:
    """The name of a study at the beginning of a sentence."""
    return study[:1].upper() + study[1:]
