"""When a policy that changes the training, and not only a step, steps in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rmetric.training.policies.context import Context


@dataclass(kw_only=True)
class Occasions:
    """A certain alarm, an alarm several steps in a row, or the alert of a named detector in the step before.

    A single unusual step is no reason to change a training: about one healthy step in a thousand is unusual.
    """

    on: Sequence[str] = ()
    """Detectors of the monitor whose alerts count as well, such as ``r_metric_robust``."""
    patience: int = 3
    """Unusual steps in a row that count."""
    rest: int = 50
    """Steps until the next occasion."""
    most: int = 10
    """In a run."""
    _row: int = field(init=False, repr=False, default=0)
    _next_step: int = field(init=False, repr=False, default=0)
    _done: int = field(init=False, repr=False, default=0)

    def is_one(self, context: Context) -> bool:
        """Whether this step is one; asked once a step."""
        self._row = self._row + 1 if context.alarm is not None else 0
        if self._done >= self.most or context.step < self._next_step:
            return False
        certain = context.alarm is not None and context.alarm.certain
        return certain or self._row >= self.patience or bool({*self.on} & {*context.alerts})

    def taken(self, step: int) -> None:
        """A policy has stepped in."""
        self._done += 1
        self._next_step = step + self.rest
        self._row = 0

    def state_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"row": self._row, "next_step": self._next_step, "done": self._done}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self._row, self._next_step, self._done = state["row"], state["next_step"], state["done"]
