"""Numbers as files hold them, finite and to so many digits, and as people read them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def finite_numbers(numbers: Mapping[str, float]) -> dict[str, float]:
    """Numbers that JSON can hold, by name; those that are not finite are left out."""
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}


def rounded(value: Any, digits: int) -> Any:
    """Numbers to so many significant digits, however deeply nested; whole numbers and texts unchanged.

    >>> rounded({"loss": [2.34567, 3], "layer": "lm_head"}, 3)
    {'loss': [2.35, 3], 'layer': 'lm_head'}
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item, digits) for item in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def number_in_words(value: float, *, digits: int = 4, missing: str = "not measured") -> str:
    """A measurement that a person reads, to so many significant digits; ``missing`` for NaN.

    >>> number_in_words(0.00123456), number_in_words(float("inf")), number_in_words(float("nan"))
    ('0.001235', 'not finite', 'not measured')
    """
    if math.isnan(value):
        return missing
    return f"{value:.{digits}g}" if math.isfinite(value) else "not finite"
