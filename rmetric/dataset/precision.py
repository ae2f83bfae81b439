"""Measurements in single precision, and back as the doubles that they were.

A log has 7 significant digits. Single precision tells all but a few of them apart: the double nearest to 7 digits comes
back by rounding, except in narrow ranges such as 0.000977 to 0.001, whose exceptions are written down one by one. That
takes half the space of doubles, whose low bits look random to every compressor.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rmetric.log_writer import to_log_precision

MAX_EXCEPTIONS = 1e-3
"""Largest share of exceptions; a column that would have more stays in double precision."""

Exceptions = dict[int, float]
"""Row → value that rounding does not give back."""


def narrowed(values: NDArray[np.float64]) -> tuple[NDArray[np.floating], Exceptions]:
    """The values in single precision and the exceptions; in double precision, without any, if there are too many.

    >>> narrowed(np.array([3.141593, 0.0009977701]))[0].dtype
    dtype('float32')
    >>> narrowed(np.array([3.14159265358979]))[0].dtype
    dtype('float64')
    """
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    wrong = np.flatnonzero(~np.isnan(values) & (widened(single, {}).view(np.int64) != values.view(np.int64)))
    if len(wrong) > MAX_EXCEPTIONS * len(values):
        return values, {}
    return single, {int(row): float(values[row]) for row in wrong}


def widened(column: NDArray[np.floating], exceptions: Exceptions) -> NDArray[np.float64]:
    """The values as they were before :func:`narrowed`."""
    if column.dtype == np.float64:
        return column.astype(np.float64, copy=False)
    values = to_log_precision(column)
    values[list(exceptions)] = list(exceptions.values())
    return values
