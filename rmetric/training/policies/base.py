"""The contract of a repair policy: asked before an update is made, told after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from rmetric.training.policies.context import Context


class Decision(Enum):
    """What becomes of an update."""

    PASS = "pass"
    """This policy has nothing more to say; the next one is asked."""
    ACCEPT = "accept"
    """The gradients as they are now are sound: make the update, ask nobody else."""
    SKIP = "skip"
    """Make no update in this step."""


@dataclass(frozen=True, kw_only=True)
class Repair:
    """One intervention of a policy; the REPAIR event of the log has the same fields."""

    step: int
    policy: str
    """Name of the policy's class."""
    verdict: str
    """What was found or done: ``transient``, ``agrees``, ``unsettled``, ``restored``, ``skipped``, …"""
    loss_before: float
    """Of the computation that raised the suspicion, nats."""
    loss_after: float
    """Of the computation that the update is made from, nats."""
    differing: tuple[str, ...] = ()
    """Tensors that were not the same, bit for bit."""
    workers: tuple[int, ...] = ()
    """Workers (or micro-batches) whose gradient norms were not the same; empty: none, or not measured."""
    seconds: float = 0.0
    """What it took."""
    reasons: tuple[str, ...] = ()
    """Why the step was suspicious."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """More that one policy tells, in plain values."""


class Policy:
    """What is done about a step that looks wrong. One policy serves one monitor.

    All processes of a distributed training call the same methods in the same order: :meth:`inspect` may say something
    else in each of them, and the others are called where at least one of them has said yes.
    """

    def attach(self, model: nn.Module, optimizer: Optimizer) -> None:
        """The monitor that watches this model begins. Raises :class:`UserError` for a model it cannot serve."""

    def inspect(self, context: Context) -> bool:
        """Whether :meth:`before_update` is to be called in this step. Cheap; no collective may be called here."""
        return context.alarm is not None

    def before_update(self, context: Context) -> Decision:
        """Gradients are there, the optimizer has not stepped."""
        raise NotImplementedError

    def after_update(self) -> None:
        """The optimizer has stepped; weights may be changed here."""

    def end_update(self) -> None:
        """After :meth:`after_update` of all policies: what is in memory now is what the next step must find."""

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs: plain values and tensors."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""

    def close(self) -> None:
        """Give back every hook. May be called twice."""


class Policies(tuple[Policy, ...]):
    """Several policies, asked in their order: ``Policies(RestoreState(), RecomputeStep(), SkipUpdate())``."""

    __slots__ = ()

    def __new__(cls, *policies: Policy) -> Policies:
        return super().__new__(cls, policies)
