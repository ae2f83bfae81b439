"""The last word over an update: none from gradients that are not finite, whatever the policies have said."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmetric.monitor.repair.context import StepContext
from rmetric.monitor.repair.policy import Decision, Policy


@dataclass(kw_only=True)
class RefuseUpdate(Policy):
    """No update from gradients that are not finite: it would destroy the weights and the optimizer's state.

    The monitor asks it after all other policies. With a gradient scaler it never refuses: the scaler makes no such
    update, and must see the gradients to find its scale. Only the first of several steps in a row is recorded.
    """

    _refused_before: bool = field(init=False, repr=False, default=False)

    def before_update(self, context: StepContext) -> Decision:
        refused = context.scaler is None and context.not_finite()
        if refused and not self._refused_before:
            context.report(self, "refused")
        self._refused_before = refused
        return Decision.SKIP if refused else Decision.PASS
