"""What several adapters need: to step in between two calls of somebody else's loop, and to do it no harm."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rmetric.errors import UserError

LOGGER = logging.getLogger("rmetric")


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace a method of an object or a class, as long as the context lasts.

    What somebody else has put over it in the meantime is left alone.
    """
    own = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if vars(owner).get(name) is value:
            if own is None:
                delattr(owner, name)
            else:
                setattr(owner, name, own)


@contextmanager
def log_errors(doing: str) -> Iterator[None]:
    """Whatever goes wrong inside is a warning, and the training goes on; a :class:`UserError` is for the user."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001 - the training must not end because it is watched
        LOGGER.warning("%s failed, training goes on: %s: %s", doing, type(error).__name__, error)
