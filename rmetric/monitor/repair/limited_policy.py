"""Bounds on how often a policy intervenes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmetric.monitor.repair.policy import Policy


@dataclass(kw_only=True)
class LimitedPolicy(Policy):
    """A policy that intervenes so often at most in a run, and in a row of steps."""

    max_interventions: int
    max_in_a_row: int
    _done: int = field(init=False, repr=False, default=0)
    _row: int = field(init=False, repr=False, default=0)
    _last_step: int = field(init=False, repr=False, default=-1)

    def allows(self, step: int) -> bool:
        """Return whether one more is allowed in this step, and count it. A row ends with a step that does not ask."""
        self._row = self._row + 1 if step == self._last_step + 1 else 1
        self._last_step = step
        if self._done >= self.max_interventions or self._row > self.max_in_a_row:
            return False
        self._done += 1
        return True

    def state_dict(self) -> dict[str, Any]:
        return {"done": self._done, "row": self._row, "last_step": self._last_step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._done, self._row, self._last_step = state["done"], state["row"], state["last_step"]
