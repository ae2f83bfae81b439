"""docs/how_logs_are_read.md has the names that the importers recognise, in their order; docs/replay.md all formats."""

from __future__ import annotations

import re

import pytest

from rmetric.importers import ALIASES, IMPORTERS, FieldMap
from rmetric.importers.names import meanings, names_step
from rmetric.measurements import MAPPED
from tests.helpers import ROOT

BETWEEN_CELLS = re.compile(r"(?<!\\)\|")
WORDS = (
    "loss",
    "nll",
    "val",
    "vali",
    "valid",
    "eval",
    "dev",
    "test",
    "log",
    "_step",
    '"global_step/max_steps": "5/200"',
)
"""What stands in code spans of the last column and is a part of a name, a call or a pair."""


def first_table(page: str, section: str) -> list[list[str]]:
    """Cells of the first table of a section, without its head."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8").split(f"## {section}\n")[1].split("\n## ")[0]
    table = text[text.index("\n|") + 1 :].split("\n\n")[0]
    return [[cell.strip() for cell in BETWEEN_CELLS.split(line)[1:-1]] for line in table.splitlines()[2:]]


def named(cell: str) -> tuple[str, ...]:
    return tuple(name.replace(r"\|", "|") for name in re.findall(r"`([^`]+)`", cell))


NAMES = {
    named(ours): (named(names), named(words))
    for ours, _, names, words in first_table("how_logs_are_read.md", "Names of columns")
}


def test_the_page_has_every_field_that_a_column_may_be() -> None:
    fields = [field for together in NAMES for field in together]
    assert len(fields) == len({*fields}) and {*fields} == {*MAPPED}


def test_the_names_on_the_page_are_those_of_the_code() -> None:
    shown = {field: names for fields, (names, _) in NAMES.items() for field in fields if names}
    assert shown == ALIASES


@pytest.mark.parametrize(
    ("field", "name"),
    [(fields[0], name) for fields, (_, words) in NAMES.items() for name in words if name not in WORDS],
)
def test_other_names_are_understood_by_their_words(field: str, name: str) -> None:
    no_mapping = FieldMap({})
    understood = {ours for ours, _ in meanings(name, no_mapping)}
    assert field in understood or (field == "step" and names_step(name, no_mapping))


def test_the_table_of_formats_is_complete() -> None:
    assert {name for name, *_ in first_table("replay.md", "What can be read")} == {f"`{name}`" for name in IMPORTERS}
