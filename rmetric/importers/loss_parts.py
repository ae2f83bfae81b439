"""Relations of several losses, found by their numbers: multiples of each other, and the total of parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST_ROWS = 8
"""Rows that state all of the losses, below which nothing is said of them."""
CLOSE = 2e-3
"""Relative difference of numbers that are the same but for the digits that a log prints."""
MOST_PARTS = 8
"""Losses of which every sum is tried."""


def distinct(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The losses without those that are 0 throughout, or a constant multiple of one before.

    >>> rows = [{"a": 1.0 / n, "b": 0.01 / n, "c": 0.0} for n in range(1, 9)]
    >>> distinct(["a", "b", "c"], rows)
    ['a']
    """
    losses = _losses(names, rows)
    kept: list[str] = []
    for name in names if losses else ():
        values = losses[name]
        is_multiple = any(_is_multiple(values, losses[other]) for other in kept)
        if values.any() and not is_multiple:
            kept.append(name)
    return kept or [*names]


def whole(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str | None:
    """Name of the total loss: the sum of two or more of the other losses; ``None`` if there is none.

    >>> rows = [{"all": 3.0 / n, "a": 2.0 / n, "b": 1.0 / n, "other": 0.3} for n in range(1, 9)]
    >>> whole(["a", "all", "b", "other"], rows)
    'all'
    """
    losses = _few_losses(names, rows)
    return next((name for name in losses if _is_sum(losses[name], [], _without(losses, name))), None)


def whole_of(part: str, names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str | None:
    """Name of the total loss that contains ``part``: the sum of it and of other losses; ``None`` if there is none.

    >>> rows = [{"all": 3.0 / n, "a": 2.0 / n, "b": 1.0 / n, "other": 0.3} for n in range(1, 9)]
    >>> whole_of("a", ["a", "all", "b", "other"], rows), whole_of("other", ["a", "all", "b", "other"], rows)
    ('all', None)
    """
    losses = _few_losses(names, rows)
    wholes = (name for name in losses if name != part)
    return next((name for name in wholes if _is_sum(losses[name], [losses[part]], _without(losses, name, part))), None)


def _losses(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> dict[str, NDArray[np.float64]]:
    """Finite values of the rows that state all of the losses; empty if these are few."""
    stated = [[row.get(name) for name in names] for row in rows]
    known = [values for values in stated if all(isinstance(value, int | float) for value in values)]
    table = np.array(known, dtype=np.float64).reshape(len(known), len(names))
    table = table[np.isfinite(table).all(axis=1)]
    return dict(zip(names, table.T, strict=True)) if len(table) >= LEAST_ROWS else {}


def _few_losses(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> dict[str, NDArray[np.float64]]:
    """Losses as :func:`_losses` returns them; empty if they are too many to try every sum of some of them."""
    return _losses(names, rows) if len(names) <= MOST_PARTS else {}


def _without(losses: Mapping[str, NDArray[np.float64]], *names: str) -> list[NDArray[np.float64]]:
    return [values for name, values in losses.items() if name not in names]


def _is_multiple(values: NDArray[np.float64], others: NDArray[np.float64]) -> bool:
    factor = float(values @ others / (others @ others))
    varies = np.ptp(others) > 10.0 * CLOSE * np.abs(others).max()
    return bool(varies) and np.allclose(values, factor * others, rtol=CLOSE, atol=0.0)


def _is_sum(
    values: NDArray[np.float64], some: list[NDArray[np.float64]], others: Sequence[NDArray[np.float64]]
) -> bool:
    """Whether values are the sum of all of ``some`` and of any of ``others``, of two terms at least."""
    sizes = range(2 - len(some), len(others) + 1)
    sums = chain.from_iterable(combinations(others, size) for size in sizes)
    return any(np.allclose(values, np.sum([*some, *more], axis=0), rtol=CLOSE, atol=0.0) for more in sums)
