"""Attributes of objects and classes, replaced for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_ABSENT = object()


@contextmanager
def replaced(owner: object, name: str, value: Any) -> Iterator[None]:
    """Give an object or a class another value of an attribute, or another method, as long as the context lasts.

    What somebody else has put over it in the meantime is left alone.
    """
    before = vars(owner).get(name, _ABSENT)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if vars(owner).get(name, _ABSENT) is value:
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
