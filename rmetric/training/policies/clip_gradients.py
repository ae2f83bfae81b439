"""Make a suspiciously large gradient as large as usual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from rmetric.state import restore, state_of
from rmetric.training.policies.base import Decision, Policy
from rmetric.training.policies.bounds import Interventions
from rmetric.training.policies.context import Context


@dataclass(kw_only=True)
class ClipGradients(Policy):
    """Scales the gradients of a suspicious step so that their global norm is at most the given or the usual one.

    A gradient that is not finite cannot be clipped: the next policy is asked.

    **Source:** Kumar, Owen, Chowdhury, Güra 2025, arXiv 2504.02507 (ZClip: clip what is unusual, to what is usual).
    **Deviation:** what is usual is the exponentially weighted mean of the logarithm of the norm (:class:`Suspicion`).
    """

    norm: float | None = None
    """Largest global norm; ``None``: the usual one."""
    max_interventions: int = 1000
    """In a run."""
    max_in_a_row: int = 50
    """Steps; then the gradients are what they are now."""
    _bound: Interventions = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._bound = Interventions(most=self.max_interventions, in_a_row=self.max_in_a_row)

    def before_update(self, context: Context) -> Decision:
        usual = context.suspicion.usual_norm
        limit = usual if self.norm is None else self.norm
        if not context.suspicious or not 0.0 < limit < float("inf"):
            return Decision.PASS
        norm = context.norm
        if not limit < norm < float("inf") or not self._bound.allow(context.step):
            return Decision.PASS
        nn.utils.clip_grad_norm_(context.parameters, limit)
        context.report(self, "clipped", details={"grad_norm": norm, "clipped_to": limit})
        return Decision.PASS

    def state_dict(self) -> dict[str, Any]:
        return {"bound": state_of(self._bound)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        restore(self._bound, state["bound"])
