"""Rows of somebody's log as they stand there: names and values, numbers among them, and how a message names them."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rmetric.importers.base import CACHED
from rmetric.importers.names import names_epoch
from rmetric.log_lines import OnDamage

NO_COLUMN = "there is no column"
"""Begin of the message on a column that is mapped and not there."""
REWARDS_ALONE = "rewards alone cannot be judged"
"""What is said of a log that has nothing else."""
LONGEST_SHOWN = 40
"""Letters of a name of theirs in a message."""


@dataclass(slots=True)
class Row:
    """What a log says at one place: names and values as they stand there."""

    line: int
    values: dict[str, Any]
    resumes: bool = False
    """Whether its run goes on here from a step before the latest one."""
    begins: bool = False
    """Whether the names of its table stand above it once more."""
    is_behind: bool = False
    """Whether it is an evaluation of an earlier step than the training, which goes on after it."""
    lacks_loss: bool = False
    """Whether its loss is empty, and it says nothing else that is new."""
    is_nan: bool = False
    """Whether that stands for NaN."""


Rows = Callable[[OnDamage], Iterator[Row]]
"""Reads the rows of a log; called more than once: for surveys first, and then for the records."""


def epoch_of(values: Mapping[str, Any]) -> int | float | None:
    """The epoch that a row states, if it does."""
    name = _epoch_among(tuple(values))
    return None if name is None else as_number(values[name])


@lru_cache(CACHED)
def _epoch_among(names: tuple[str, ...]) -> str | None:
    """The name of the epoch among those of a row; beside it the episodes are those of the data."""
    stated = [name for name in names if names_epoch(name)]
    return next((name for name in stated if "epoch" in name.casefold()), stated[0] if stated else None)


def as_number(value: Any) -> int | float | None:
    """A counter's value as a number; ``None`` if it is none.

    >>> as_number("12"), as_number(" 0.5"), as_number("one"), as_number(True), as_number(10**400)
    (12, 0.5, None, None, None)
    """
    if type(value) is float or type(value) is int:  # nearly always
        return value if -sys.float_info.max <= value <= sys.float_info.max else None
    if isinstance(value, str) and len(value) < 40:
        try:
            value = float(value) if not value.strip().isdecimal() else int(value)
        except ValueError:
            return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and -sys.float_info.max <= value <= sys.float_info.max else None


def as_measured(value: Any) -> int | float | None:
    """A measurement as a number: as :func:`as_number`, but NaN and infinity are kept.

    >>> as_measured("12"), as_measured(math.inf), as_measured("one")
    (12, inf, None)
    """
    return value if isinstance(value, float) else as_number(value)


def is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def names_in_words(names: Iterable[str]) -> str:
    """The first of some names of columns, for a message."""
    return ", ".join(repr(_shortened(name)) for name in itertools.islice(names, 12))


def no_column(theirs: str, names: Iterable[str]) -> str:
    """Message on a column that a mapping names, and that is not among the names of a log.

    >>> no_column("objective", ["step", "loss"])
    "there is no column 'objective' (columns with values: 'step', 'loss')"
    """
    return f"{NO_COLUMN} {theirs!r} (columns with values: {names_in_words(names)})"


def _shortened(name: str) -> str:
    """A name; of a long one its end, which tells ``….total_loss`` from ``….policy_loss``."""
    return name if len(name) <= LONGEST_SHOWN else "…" + name[1 - LONGEST_SHOWN :]
