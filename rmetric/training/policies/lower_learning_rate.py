"""Take smaller steps for a while."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from rmetric.training.policies.base import Decision
from rmetric.training.policies.context import Context
from rmetric.training.policies.treatment import Treatment


@dataclass(kw_only=True)
class LowerLearningRate(Treatment):
    """Multiplies the learning rate for some updates, then gives it back.

    The factor is there only while the optimizer steps: a scheduler, the training loop and the log see the scheduled
    rate, and neither of them can multiply twice. What is left of the time is part of :meth:`state_dict`.

    **Source:** a lower learning rate as a mitigation of corrupted steps: O. Kao, Observability and Fault Tolerance for
    LLM training (slides, TU Berlin).
    """

    factor: float = 0.5
    """In (0, 1)."""
    steps: int = 100
    """Updates with the lower rate."""
    _left: int = field(init=False, repr=False, default=0)
    _scheduled: list[Any] = field(init=False, repr=False, default_factory=list)
    _handles: list[RemovableHandle] = field(init=False, repr=False, default_factory=list)

    def __post_init__(self) -> None:
        if not 0.0 < self.factor < 1.0:
            raise ValueError(f"factor is {self.factor}; it must lie between 0 and 1")

    def attach(self, model: nn.Module, optimizer: Optimizer) -> None:
        self._handles = [
            optimizer.register_step_pre_hook(self._lower),
            optimizer.register_step_post_hook(self._give_back),
        ]

    def treat(self, context: Context) -> Decision:
        self._left = self.steps
        context.report(self, "lowered", details={"factor": self.factor, "steps": self.steps})
        return Decision.PASS

    def _lower(self, optimizer: Optimizer, *_: Any) -> None:
        if self._left <= 0:
            return
        self._scheduled = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * self.factor

    def _give_back(self, optimizer: Optimizer, *_: Any) -> None:
        if self._scheduled:
            for group, rate in zip(optimizer.param_groups, self._scheduled, strict=True):
                group["lr"] = rate
            self._scheduled = []
            self._left -= 1

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "left": self._left}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._left = state["left"]

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
