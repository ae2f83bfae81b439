"""How often something that takes long is done again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

SHARE = 0.05
"""Largest share of one processor that doing it again and again may take."""


class Pace:
    """Keeps what is done again and again to a twentieth of the time."""

    def __init__(self) -> None:
        self._not_before = 0.0

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._not_before

    def hurry(self) -> None:
        """Let it be done at once."""
        self._not_before = 0.0

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Note how long it takes."""
        begun = time.monotonic()
        yield
        now = time.monotonic()
        self._not_before = now + (now - begun) / SHARE
