"""Resolution of the values of a log: a difference that rounding explains is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MOST_DIGITS = 16
"""Digits at which a column counts as not rounded."""
SHORTEST = (8, 9)
"""Digits that the shortest form of a column of single precision has; any six digits are such a form."""
FEW, LEAST_DIGITS = 10, 4
"""A column with fewer different values may have few digits without being rounded: it counts as exact to so many,
unless its log is seen to be rounded."""


def rounding(one: Floats, other: Floats, decimals: tuple[int, int]) -> Floats:
    """Largest difference of two columns that rounding explains, value by value; 0 where both are rounded alike.

    Two logs of one resolution round one number to the same decimal. ``decimals`` are those of the two logs
    (:func:`decimals_of`); where they are the same, they are no reason for a difference.

    >>> exact, of_logs = np.linspace(1.0, 2.0, 50) / 3.0, (MOST_DIGITS, MOST_DIGITS)
    >>> [float(rounding(exact.round(4), one, of_logs).max().round(7)) for one in (exact, (exact + 1e-4).round(4))]
    [5e-05, 0.0]
    """
    of_logs = (MOST_DIGITS, MOST_DIGITS) if decimals[0] == decimals[1] else decimals
    a, b = resolution(one, of_logs[0]), resolution(other, of_logs[1])
    alike = np.isclose(a, b, rtol=1e-6, atol=0.0)
    return np.where(alike, 0.0, 0.5 * (a + b) * (1.0 + 1e-6))


def decimals_of(columns: Iterable[Floats]) -> int:
    """Decimals to which a log is rounded: those of its columns of many values, together; ``MOST_DIGITS`` without any.

    >>> decimals_of([np.linspace(1.0, 2.0, 50).round(3), np.full(50, 3e-5)])
    3
    """
    finite = [values[np.isfinite(values)] for values in columns]
    many = [values for values in finite if not _few(values)]
    return _decimals(np.concatenate(many)) if many else MOST_DIGITS


def resolution(values: Floats, decimals: int = MOST_DIGITS) -> Floats:
    """Step of the grid on which all values of a column lie, at each of them: of fixed decimals or significant digits.

    Few values lie on the grid of their log (``decimals``) if they can; but a lone value, such as a constant rate of
    0.001, is no evidence of rounding, unless it is 0.

    Values that are all those of single precision have its spacing, if that is coarser, or twice it where they were
    printed in its shortest form, which rounds once more. What is not finite has NaN.

    >>> resolution(np.arange(1.0, 2.0, 0.0625).round(2)).max().item(), resolution(np.array([0.001])).item()
    (0.01, 1e-06)
    """
    finite = values[np.isfinite(values)]
    exponent = _exponents(values)
    digits = _least(finite, lambda left, count: count - 1 - _exponents(left))
    if _few(finite):
        step = 10.0 ** (exponent + 1 - max(digits, LEAST_DIGITS))
        lone = len(finite) and finite[0] != 0.0 and (finite == finite[0]).all()
        if not lone and _decimals(finite) <= decimals < MOST_DIGITS:
            step = np.maximum(step, 10.0**-decimals)
    else:
        step = np.maximum(10.0 ** (exponent + 1 - digits), 10.0 ** -_decimals(finite))
    with np.errstate(over="ignore", invalid="ignore"):
        single = values.astype(np.float32)
        spacing = np.spacing(np.abs(single)).astype(float)
    if np.array_equal(single[np.isfinite(values)], finite):
        step = np.maximum(step, spacing)
    elif digits in SHORTEST and np.array_equal(single[np.isfinite(values)].astype(str).astype(float), finite):
        step = np.maximum(step, 2.0 * spacing)
    return np.where(np.isfinite(values), step, np.nan)


def _few(values: Floats) -> bool:
    """Whether so few values differ that their digits say little of rounding."""
    return len(np.unique(values)) < FEW


def _decimals(values: Floats) -> int:
    """Fewest decimals that the values have."""
    return _least(values, lambda left, count: np.full(len(left), float(count)))


def _least(values: Floats, decimals_for: Callable[[Floats, int], Floats]) -> int:
    """Fewest digits to which no value is changed by rounding to the decimals that they mean for it."""
    left = values
    for digits in range(MOST_DIGITS):
        decimals = decimals_for(left, digits)
        with np.errstate(over="ignore", invalid="ignore"):
            up, down = 10.0 ** np.maximum(decimals, 0.0), 10.0 ** np.maximum(-decimals, 0.0)
            left = left[np.rint(left / down * up) * down / up != left]
        if not len(left):
            return digits
    return MOST_DIGITS


def _exponents(values: Floats) -> Floats:
    """Power of ten of the first digit; that of the smallest number where a value is 0 or not finite."""
    usable = np.isfinite(values) & (values != 0.0)
    return np.floor(np.log10(np.abs(values), where=usable, out=np.full(len(values), -307.0)))
