"""Take smaller steps for a while."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.optim import Optimizer

from rmetric.detectors import ROBUST
from rmetric.errors import UserError
from rmetric.monitor.arguments import check_number
from rmetric.monitor.loop_probes import remove_hooks
from rmetric.monitor.repair.context import StepContext
from rmetric.monitor.repair.policy import Decision, InterventionPolicy, InterventionRule


@dataclass(kw_only=True)
class LowerLearningRate(InterventionPolicy):
    """Multiplies the learning rate for some updates, then gives it back.

    A scheduler and the training loop see the scheduled rate (:class:`ReducedRate`), records the one that is used: else
    the updates that grow when it is given back would be a sign of a fault, and lower it again. What is left of the time
    is part of :meth:`state_dict`.

    **Source:** a lower learning rate as a mitigation of corrupted steps: O. Kao, Observability and Fault Tolerance for
    LLM training (slides, TU Berlin).
    """

    factor: float = 0.5
    """Factor on the learning rate, in (0, 1)."""
    steps: int = 100
    """Number of updates with the lower rate."""
    when: InterventionRule = field(default_factory=lambda: InterventionRule(on=(ROBUST,), falls=False))
    """Rule for when to intervene, and how often. By default also after an alert of the robust R-Metric: a rate that is
    too large hardly ever makes gradients unusual in one step after the other. And not where they fall, which no smaller
    step would mend."""
    _rate: ReducedRate | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        if not 0.0 < self.factor < 1.0:
            raise UserError(f"factor is {self.factor}; it must lie between 0 and 1")
        check_number("steps", self.steps, "updates", example=100)

    def attach(self, model: nn.Module, optimizer: Optimizer) -> None:
        self._rate = ReducedRate(optimizer, self.factor)

    def intervene(self, context: StepContext) -> Decision:
        assert self._rate is not None
        self._rate.left = self.steps
        context.report(self, "lowered", details={"factor": self.factor, "steps": self.steps})
        return Decision.PASS

    @property
    def rate_factor(self) -> float:
        return self._rate.now if self._rate is not None else 1.0

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "left": self._rate.left if self._rate is not None else 0}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if self._rate is not None:
            self._rate.left = state["left"]

    def close(self) -> None:
        if self._rate is not None:
            self._rate.close()


class ReducedRate:
    """Multiplies the learning rates of an optimizer while it steps, for some updates.

    The factor is there only while the optimizer steps: a scheduler and the training loop see the scheduled rate, and
    neither of them can multiply twice. After a step that raises it is there until the next one begins.

    A group without a rate is left alone. Raises :class:`UserError` for an optimizer whose groups all have none, as an
    Adafactor that works it out itself, unless the factor is 1.
    """

    def __init__(self, optimizer: Optimizer, factor: float) -> None:
        if factor < 1.0 and not _with_rate(optimizer):
            raise UserError(f"{type(optimizer).__name__} has no learning rate that could be lowered: lr is not set")
        self._factor = factor
        self._lowered: list[tuple[dict[str, Any], Any, Any]] = []
        """Groups whose rate is lowered, with the scheduled and the lower rate."""
        self.left = 0
        """Updates to come with the lower rate."""
        self._handles = [
            optimizer.register_step_pre_hook(self._lower),
            optimizer.register_step_post_hook(self._end_step),
        ]
        # of two, the one that lowers last has to give back first
        optimizer._optimizer_step_post_hooks.move_to_end(self._handles[1].id, last=False)  # type: ignore[attr-defined]

    @property
    def now(self) -> float:
        """Factor of the next update."""
        return self._factor if self.left > 0 else 1.0

    def _lower(self, optimizer: Optimizer, *_: Any) -> None:
        self._give_back()  # a step that raised has not
        if self.left <= 0:
            return
        self._lowered = [(group, group["lr"], group["lr"] * self._factor) for group in _with_rate(optimizer)]
        for group, _scheduled, lower in self._lowered:
            group["lr"] = lower

    def _end_step(self, *_: Any) -> None:
        if self._lowered:
            self._give_back()
            self.left -= 1

    def _give_back(self) -> None:
        for group, scheduled, lower in self._lowered:
            if group["lr"] is lower:  # else somebody has set another one
                group["lr"] = scheduled
        self._lowered = []

    def close(self) -> None:
        self._give_back()
        remove_hooks(self._handles)


def _with_rate(optimizer: Optimizer) -> list[dict[str, Any]]:
    return [group for group in optimizer.param_groups if group.get("lr") is not None]
