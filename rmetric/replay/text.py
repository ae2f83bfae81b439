"""Values of a log that nobody has checked yet."""

from __future__ import annotations

from typing import Any

MAX_TEXT = 200


def plain_text(value: Any) -> str:
    """Text of a log that is fit for a file and a terminal: short, without control characters or broken Unicode.

    >>> plain_text("loss\\x1b[31m")
    'loss?[31m'
    """
    short = str(value)[:MAX_TEXT].encode("utf-8", "replace").decode()
    return "".join(character if character.isprintable() else "?" for character in short)


def is_finite_number(value: Any) -> bool:
    """Whether a JSON value is a number to reckon with: no truth value, no NaN, nothing beyond 10³⁰⁰."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
