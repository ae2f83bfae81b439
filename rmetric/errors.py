"""What goes wrong: the logger that tells of it, the exception for mistakes that the user can correct, and words."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterable

LOGGER = logging.getLogger("rmetric")
"""Of the whole package; a program that configures nothing sees its warnings."""


class UserError(ValueError):
    """Bad input; its message is one line that says what to do. Scripts print it as ``error: …`` and exit with 2."""


def on_one_line(error: Exception) -> str:
    """What an error says, after its class; of a :class:`UserError` what it says alone.

    >>> on_one_line(ValueError("two\\nlines")), on_one_line(UserError("give --data"))
    ('ValueError: two lines', 'give --data')
    """
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


def without_live(what: str, error: ModuleNotFoundError) -> str:
    """What to install where a package of real training is missing; in a clone, too, as long as it is installed."""
    return without(what, error, "'rmetric[live]'")


def without(what: str, error: ModuleNotFoundError, install: str) -> str:
    """What to install where something needs a package that is missing."""
    return f"{what} needs {error.name}, which is missing: pip install {install}"


def naming_live(imported: Callable[[str], object], package: str) -> Callable[[str], object]:
    """``__getattr__`` of a package whose names are imported on first use: where torch is missing, what to install."""

    def found(name: str) -> object:
        try:
            return imported(name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ModuleNotFoundError(without_live(f"{package}.{name}", error), name=error.name) from error

    return found


def did_you_mean(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """End of a message that names the known word which is spelt most like one that is not known; empty if none is.

    Parameters
    ----------
    cutoff
        Least similarity, 0 to 1.

    Examples
    --------
    >>> did_you_mean("--no-plots", ["--no-plot", "--out"]), did_you_mean("x", ["--out"])
    ('; did you mean --no-plot?', '')
    """
    near = difflib.get_close_matches(word, [*known], n=1, cutoff=cutoff)
    return f"; did you mean {near[0]}?" if near else ""
