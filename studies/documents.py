"""Documents with parts that commands make, between two marks."""

from __future__ import annotations

from pathlib import Path

from rmetric.errors import UserError
from rmetric.files import write_atomically


def put_between(document: Path, begin: str, end: str, made: str) -> None:
    """Replace what stands between two marks of a document.

    Raises
    ------
    UserError
        If the document is no text, or has not both marks.
    """
    try:
        text = document.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{document} is no text; give a Markdown file, such as data/README.md") from None
    if not 0 <= text.find(begin) < text.find(end):
        raise UserError(f"{document} has no place for this; it needs the lines {begin} and {end}")
    write_atomically(
        document, f"{text[: text.index(begin) + len(begin)]}\n\n{made}\n{text[text.index(end) :]}".encode()
    )
