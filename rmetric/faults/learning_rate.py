"""What the faults of the learning rate share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmetric.errors import UserError

if TYPE_CHECKING:
    from rmetric.training.live_run import LiveRun


@contextmanager
def learning_rate_times(training: LiveRun, factor: float) -> Iterator[None]:
    """Multiply the learning rate of a live run as long as the context lasts.

    Several multiply each other and may end in any order, as the parts of a combined fault do.
    """
    training.learning_rate_factor *= factor
    try:
        yield
    finally:
        training.learning_rate_factor /= factor


def require_factor(name: str, factor: float) -> None:
    """Raise :class:`UserError` unless a factor is above 0."""
    if not factor > 0.0:
        raise UserError(f"{name} has factor={factor}; choose one above 0")
