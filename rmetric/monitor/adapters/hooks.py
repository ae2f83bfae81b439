"""Replace a method of a training framework for a while; log errors instead of raising them into its loop."""

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
    """Log an error inside the context as a warning, so that training goes on; a :class:`UserError` is raised."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001 - the training must not end because it is watched
        LOGGER.warning("%s failed, training goes on: %s: %s", doing, type(error).__name__, error)
