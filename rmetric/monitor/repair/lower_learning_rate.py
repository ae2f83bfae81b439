"""Take smaller steps for a while."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.optim import Optimizer

from rmetric.errors import UserError
from rmetric.monitor.repair.context import StepContext
from rmetric.monitor.repair.policy import Decision, InterventionPolicy
from rmetric.monitor.repair.reduced_rate import ReducedRate


@dataclass(kw_only=True)
class LowerLearningRate(InterventionPolicy):
    """Multiplies the learning rate for some updates, then gives it back.

    A scheduler, the training loop and the log see the scheduled rate (:class:`ReducedRate`). What is left of the time
    is part of :meth:`state_dict`.

    **Source:** a lower learning rate as a mitigation of corrupted steps: O. Kao, Observability and Fault Tolerance for
    LLM training (slides, TU Berlin).
    """

    factor: float = 0.5
    """Factor on the learning rate, in (0, 1)."""
    steps: int = 100
    """Number of updates with the lower rate."""
    _rate: ReducedRate | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        if not 0.0 < self.factor < 1.0:
            raise UserError(f"factor is {self.factor}; it must lie between 0 and 1")

    def attach(self, model: nn.Module, optimizer: Optimizer) -> None:
        self._rate = ReducedRate(optimizer, self.factor)

    def intervene(self, context: StepContext) -> Decision:
        assert self._rate is not None
        self._rate.left = self.steps
        context.report(self, "lowered", details={"factor": self.factor, "steps": self.steps})
        return Decision.PASS

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "left": self._rate.left if self._rate is not None else 0}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if self._rate is not None:
            self._rate.left = state["left"]

    def close(self) -> None:
        if self._rate is not None:
            self._rate.close()
