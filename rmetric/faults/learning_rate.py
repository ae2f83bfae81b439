"""What the faults of the learning rate share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import log
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rmetric.errors import UserError
from rmetric.faults.processes import BoolsRT, Processes

if TYPE_CHECKING:
    from rmetric.live.run import LiveRun


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


def dose_of_factor(factor: float) -> float:
    """Dose of a learning rate at its peak: ln(factor), 0 for one that is not too high.

    >>> dose_of_factor(1.0), dose_of_factor(0.5)
    (0.0, 0.0)
    """
    return max(0.0, log(factor))


def doses_at_onset(factor: float, state: Processes, active: BoolsRT) -> NDArray[np.float64]:
    """Dose of each run, (R,): where the schedule has come down at the onset, a factor does less."""
    scheduled = state.learning_rate_rel[np.arange(state.runs), np.argmax(active, axis=1)]
    return np.maximum(0.0, np.log(factor * scheduled))
