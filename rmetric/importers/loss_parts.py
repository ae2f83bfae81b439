"""Which of several losses say the same, and which one is the whole of the others: by their numbers."""

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
    """The loss that is the sum of two or more of the others; ``None`` if there is no such one.

    >>> rows = [{"all": 3.0 / n, "a": 2.0 / n, "b": 1.0 / n, "other": 0.3} for n in range(1, 9)]
    >>> whole(["a", "all", "b", "other"], rows)
    'all'
    """
    losses = _losses(names, rows) if len(names) <= MOST_PARTS else {}
    return next((name for name in losses if _is_sum(name, losses)), None)


def _losses(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> dict[str, NDArray[np.float64]]:
    """Finite values of the rows that state all of the losses; empty if these are few."""
    stated = [[row.get(name) for name in names] for row in rows]
    known = [values for values in stated if all(isinstance(value, int | float) for value in values)]
    table = np.array(known, dtype=np.float64).reshape(len(known), len(names))
    table = table[np.isfinite(table).all(axis=1)]
    return dict(zip(names, table.T, strict=True)) if len(table) >= LEAST_ROWS else {}


def _is_multiple(values: NDArray[np.float64], others: NDArray[np.float64]) -> bool:
    factor = float(values @ others / (others @ others))
    varies = np.ptp(others) > 10.0 * CLOSE * np.abs(others).max()
    return bool(varies) and np.allclose(values, factor * others, rtol=CLOSE, atol=0.0)


def _is_sum(name: str, losses: Mapping[str, NDArray[np.float64]]) -> bool:
    others = [values for other, values in losses.items() if other != name]
    sums = chain.from_iterable(combinations(others, size) for size in range(2, len(others) + 1))
    return any(np.allclose(losses[name], np.sum(some, axis=0), rtol=CLOSE, atol=0.0) for some in sums)
