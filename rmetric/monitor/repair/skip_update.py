"""Leave the update of a suspicious step out."""

from __future__ import annotations

from dataclasses import dataclass

from rmetric.monitor.repair.context import StepContext
from rmetric.monitor.repair.policy import Decision, LimitedPolicy


@dataclass(kw_only=True)
class SkipUpdate(LimitedPolicy):
    """No update in a suspicious step: :meth:`~rmetric.monitor.monitor.TrainingMonitor.step` answers ``False``.

    A batch is lost, and the run is no longer that of its twin; weights and optimizer state stay sound. Since a
    suspicion may be a false one, use it after :class:`~rmetric.monitor.repair.recompute_step.RecomputeStep`, or with
    ``certain``.

    **Source:** skipping batches around loss spikes: Chowdhery et al. 2022, arXiv 2204.02311, section 5.1.
    """

    certain: bool = True
    """True: only where a number is not finite, or the loss or the gradient is exactly that of a dead model."""
    max_interventions: int = 100
    """Most interventions in a run."""
    max_in_a_row: int = 3
    """Most steps in a row; a fault that stays must not stop the training for good."""

    def inspect(self, context: StepContext) -> bool:
        return context.alarm is not None and (context.alarm.certain or not self.certain)

    def before_update(self, context: StepContext) -> Decision:
        if not context.suspicious or not self.allows(context.step):
            return Decision.PASS
        context.report(self, "skipped")
        return Decision.SKIP
