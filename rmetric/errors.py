"""The exception for mistakes that the user can correct, and a hint for names that are misspelt."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Bad input; its message is one line that says what to do. Scripts print it as ``error: …`` and exit with 2."""


def did_you_mean(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """End of a message that names the known word which is spelt most like one that is not known; empty if none is.

    Parameters
    ----------
    cutoff
        Least similarity, 0 to 1.

    >>> did_you_mean("--no-plots", ["--no-plot", "--out"]), did_you_mean("x", ["--out"])
    ('; did you mean --no-plot?', '')
    """
    near = difflib.get_close_matches(word, [*known], n=1, cutoff=cutoff)
    return f"; did you mean {near[0]}?" if near else ""
