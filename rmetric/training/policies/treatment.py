"""What the policies have in common that change the training for a while."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmetric.training.policies.base import Decision, Policy
from rmetric.training.policies.context import Context
from rmetric.training.policies.occasions import Occasions


@dataclass(kw_only=True)
class Treatment(Policy):
    """Steps in on an occasion, and then leaves the step to the next policy."""

    occasions: Occasions = field(default_factory=Occasions)
    """When to step in, and how often."""

    def inspect(self, context: Context) -> bool:
        return self.occasions.is_one(context)

    def before_update(self, context: Context) -> Decision:
        self.occasions.taken(context.step)
        return self.treat(context)

    def treat(self, context: Context) -> Decision:
        """Do it, and :meth:`Context.report` it."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        return {"occasions": self.occasions.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.occasions.load_state_dict(state["occasions"])
