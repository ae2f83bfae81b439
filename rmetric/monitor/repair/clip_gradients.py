"""Clip the gradients of a suspicious step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn

from rmetric.errors import UserError
from rmetric.monitor.repair.context import StepContext
from rmetric.monitor.repair.policy import Decision, LimitedPolicy


@dataclass(kw_only=True)
class ClipGradients(LimitedPolicy):
    """Scales the gradients of a suspicious step so that their global norm is at most the given or the usual one.

    A gradient that is not finite cannot be clipped: the next policy is asked.

    **Source:** Kumar, Owen, Chowdhury, Güra 2025, arXiv 2504.02507 (ZClip: clip what is unusual, to what is usual).
    **Deviation:** what is usual is the exponentially weighted mean of the logarithm of the norm
    (:class:`~rmetric.monitor.repair.trigger.Suspicion`).
    """

    norm: float | None = None
    """Largest global norm; ``None``: the usual one."""
    max_interventions: int = 1000
    """Most interventions in a run."""
    max_in_a_row: int = 50
    """Most steps in a row; after them the gradients are taken as they are."""

    def __post_init__(self) -> None:
        if self.norm is not None and not 0.0 < self.norm < math.inf:
            raise UserError(f"norm is {self.norm}; it must be above 0, or be left out for the usual one")

    def before_update(self, context: StepContext) -> Decision:
        usual = context.suspicion.usual_norm
        limit = usual if self.norm is None else self.norm
        if not context.suspicious or not 0.0 < limit < math.inf:
            return Decision.PASS
        norm = context.norm
        if not limit < norm < math.inf or not self.allows(context.step):
            return Decision.PASS
        nn.utils.clip_grad_norm_(context.parameters, limit)
        context.sound = False  # what was clipped must not let the next one of a burst pass
        context.report(self, "clipped", details={"grad_norm": norm, "clipped_to": limit})
        return Decision.PASS
