"""Numbers that a training loop reports, whatever it is written with: the measurements where there is no model to look
at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rmetric.monitor.measurer import Measurer
from rmetric.monitor.notes import number_in
from rmetric.monitor.pending_step import PendingStep
from rmetric.monitor.since_record import SinceRecord
from rmetric.monitor.step_numbers import UNMEASURED, StepNumbers

NO_NUMBER = (
    "{}= is not one real number, and is ignored; an array may have been donated, and inside jax.jit a number has to "
    "come by jax.debug.callback"
)


def number_of(value: Any) -> float | None:
    """A number of Python, NumPy, JAX, TensorFlow or the like; ``None`` if it is not one real number.

    Waits for a device that has not computed it yet.

    >>> number_of(2), number_of(1j), number_of("2"), number_of([2])
    (2.0, None, None, None)
    """
    if isinstance(value, str | bytes | np.ma.MaskedArray):
        return None
    held = number_in(value)
    try:
        return float(value if held is None else held)
    except Exception:  # noqa: BLE001 - each library raises one of its own
        return None


def as_it_is(value: Any) -> Any:
    """A value that what its owner does with it later does not change: what is on the host is read."""
    if isinstance(value, np.ndarray | np.generic):
        held = number_of(value)
        return value.copy() if held is None else held
    return value.detach().clone() if hasattr(value, "detach") else value  # a tensor of torch, without its graph


@dataclass(frozen=True)
class Reported:
    """What was reported of a step."""

    loss: Any
    others: Mapping[str, Any]
    """By name."""


@dataclass(frozen=True)
class ReportedTransfer:
    """Reported numbers, which stay on their device until they are read. ``tell`` is called with what is no number."""

    reported: Reported
    tell: Callable[[str], None]

    def read(self) -> StepNumbers:
        given = {"training_loss": self.reported.loss, **self.reported.others}
        found = {name: number_of(value) for name, value in given.items()}
        for name, value in found.items():
            if value is None:
                self.tell("no loss" if name == "training_loss" else NO_NUMBER.format(name))
        if (found.get("grad_norm") or 0.0) < 0.0:  # of gradients that are not finite, as DeepSpeed says it
            found["grad_norm"] = math.inf
        return replace(UNMEASURED, scalars={name: value for name, value in found.items() if value is not None})


class ReportedNumbers(Measurer):
    """Takes the measurements of a step from what :meth:`report` was given right before it."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._reported: dict[str, Any] = {}
        self.before: int | None = None
        """The step reported before; ``None``: none yet."""

    def report(self, numbers: Mapping[str, Any]) -> None:
        """Take what is known of the next step beside its loss; ``None``: not measured."""
        self._reported = {name: value for name, value in numbers.items() if value is not None}

    def usable(self, loss: Any) -> float | None:
        return number_of(loss)

    def computation(self, step: int, loss: Any) -> Reported:
        return Reported(as_it_is(loss), {name: as_it_is(value) for name, value in self._reported.items()})

    def measure(self, step: int, computation: Reported, step_time_s: float, since: SinceRecord) -> PendingStep:
        """Keep the numbers as they are: nothing waits for a device before the next step."""
        before, self.before = self.before, step
        steps = 1 if before is None else step - before
        transfer = ReportedTransfer(computation, self._tell)
        return PendingStep(step, transfer, math.nan, step_time_s / steps, since, steps=steps, changed_settings=[])

    def load_state_dict(self, state: Mapping[str, Any], step: int, source: str) -> None:
        self.before = step or None  # a state from before the first step, which may be 0, has step 0 too
