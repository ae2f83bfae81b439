"""The scale of scales."""

from __future__ import annotations

import math


def logarithm(value: float) -> float:
    """ln of a scale; infinity stays, and NaN (nothing to be compared) is for 0 and below, which is no matter of size.

    >>> [logarithm(x) for x in (1.0, float("inf"), 0.0)]
    [0.0, inf, nan]
    """
    return math.log(value) if value > 0.0 else math.nan
