"""Leave a suspicious update out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmetric.state import restore, state_of
from rmetric.training.policies.base import Decision, Policy
from rmetric.training.policies.bounds import Interventions
from rmetric.training.policies.context import Context


@dataclass(kw_only=True)
class SkipUpdate(Policy):
    """No update in a suspicious step: :meth:`TrainingMonitor.step` answers ``False``.

    A batch is lost, and the run is no longer that of its twin; weights and optimizer state stay sound. Since a
    suspicion may be a false one, use it after :class:`RecomputeStep`, or with ``certain``.

    **Source:** skipping batches around loss spikes: Chowdhery et al. 2022, arXiv 2204.02311, section 5.1.
    """

    certain: bool = True
    """Only where a number is not finite, or the loss or the gradient is exactly that of a dead model."""
    max_interventions: int = 100
    """In a run."""
    max_in_a_row: int = 3
    """Steps; a fault that stays must not stop the training for good."""
    _bound: Interventions = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._bound = Interventions(most=self.max_interventions, in_a_row=self.max_in_a_row)

    def inspect(self, context: Context) -> bool:
        return context.alarm is not None and (context.alarm.certain or not self.certain)

    def before_update(self, context: Context) -> Decision:
        if not context.suspicious or not self._bound.allow(context.step):
            return Decision.PASS
        context.report(self, "skipped")
        return Decision.SKIP

    def state_dict(self) -> dict[str, Any]:
        return {"bound": state_of(self._bound)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        restore(self._bound, state["bound"])
