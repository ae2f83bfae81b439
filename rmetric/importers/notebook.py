"""What the cells of a Jupyter notebook printed, tables that they showed included, as lines of a console."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmetric.importers.base import HEAD_BYTES
from rmetric.importers.json_document import document_in
from rmetric.log_lines import OnDamage, numbered_lines

_CELLS = re.compile(rb'\s*\{\s*"(?:cells|metadata|nbformat)"\s*:')
_ROW, _CELL = re.compile(r"<tr\b.*?</tr>", re.DOTALL), re.compile(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")


def is_notebook(head: bytes) -> bool:
    """Whether a file that begins so is a notebook."""
    return _CELLS.match(head) is not None and b'"cell' in head


def printed_lines(path: Path, on_damage: OnDamage) -> Iterator[tuple[int, bytes]]:
    """The numbered lines of a text that are not blank; of a notebook those that its cells printed."""
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
    document = document_in(path) if is_notebook(head) else None
    if not isinstance(document, dict):
        yield from numbered_lines(path, on_damage)
        return
    printed = (line for output in _outputs(document) for line in _lines(output))
    yield from ((number, line.encode(errors="replace")) for number, line in enumerate(printed, 1) if line.strip())


def _outputs(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for cell in _list(document.get("cells")):
        yield from (output for output in _list(_dict(cell).get("outputs")) if isinstance(output, dict))


def _lines(output: dict[str, Any]) -> Iterator[str]:
    """What an output printed, or the rows of the tables that it shows, cells between bars."""
    shown = _text(_dict(output.get("data")).get("text/html"))
    if shown:
        for row in _ROW.findall(shown):
            cells = [html.unescape(_TAG.sub("", cell)).strip() for cell in _CELL.findall(row)]
            yield f"| {' | '.join(cells)} |\n"
        return
    text = _text(output.get("text")) or _text(_dict(output.get("data")).get("text/plain"))
    yield from text.splitlines(keepends=True) if "\r" not in text else (f"{line}\n" for line in text.split("\n"))


def _text(value: Any) -> str:
    """A text, which notebooks keep whole or line by line."""
    return "".join(item for item in _list(value) if isinstance(item, str)) if not isinstance(value, str) else value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
