"""Cache in memory, bounded by the bytes of its values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
MOST_BYTES = 2**26
"""Of all values of a cache together."""


class Latest(Generic[K, V]):
    """Values that are made when they are asked for; those used longest ago are let go of, the newest never.

    Parameters
    ----------
    size
        Bytes of a value.

    Examples
    --------
    >>> latest = Latest[str, str](lambda value: len(value) * MOST_BYTES // 5)
    >>> [latest.get(key, lambda: made) for key, made in (("a", "new"), ("a", "again"), ("b", "four"), ("a", "anew"))]
    ['new', 'new', 'four', 'anew']
    """

    def __init__(self, size: Callable[[V], int]) -> None:
        self._size = size
        self._values: OrderedDict[K, V] = OrderedDict()
        self._bytes = 0

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key."""
        if key not in self._values:
            self._let_go(0)  # what would not stay need not be there while the next one is made
            self._values[key] = make()
            self._bytes += self._size(self._values[key])
        self._values.move_to_end(key)
        self._let_go(1)
        return self._values[key]

    def _let_go(self, keep: int) -> None:
        while self._bytes > MOST_BYTES and len(self._values) > keep:
            self._bytes -= self._size(self._values.popitem(last=False)[1])
