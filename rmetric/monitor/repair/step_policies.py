"""Policies that change one update: clip the gradient, leave the update out, take smaller steps for a while."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.optim import Optimizer

from rmetric.errors import UserError
from rmetric.monitor.repair.context import StepContext
from rmetric.monitor.repair.policy import Decision, InterventionPolicy, Policy
from rmetric.monitor.repair.reduced_rate import ReducedRate


@dataclass(kw_only=True)
class _LimitedPolicy(Policy):
    """A policy that intervenes so often at most in a run, and in a row of steps."""

    max_interventions: int
    max_in_a_row: int
    _done: int = field(init=False, repr=False, default=0)
    _row: int = field(init=False, repr=False, default=0)
    _last_step: int = field(init=False, repr=False, default=-1)

    def allows(self, step: int) -> bool:
        """Return whether one more is allowed in this step, and count it. A row ends with a step that does not ask."""
        self._row = self._row + 1 if step == self._last_step + 1 else 1
        self._last_step = step
        if self._done >= self.max_interventions or self._row > self.max_in_a_row:
            return False
        self._done += 1
        return True

    def state_dict(self) -> dict[str, Any]:
        return {"done": self._done, "row": self._row, "last_step": self._last_step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._done, self._row, self._last_step = state["done"], state["row"], state["last_step"]


@dataclass(kw_only=True)
class ClipGradients(_LimitedPolicy):
    """Scales the gradients of a suspicious step so that their global norm is at most the given or the usual one.

    A gradient that is not finite cannot be clipped: the next policy is asked.

    **Source:** Kumar, Owen, Chowdhury, Güra 2025, arXiv 2504.02507 (ZClip: clip what is unusual, to what is usual).
    **Deviation:** what is usual is the exponentially weighted mean of the logarithm of the norm (:class:`Suspicion`).
    """

    norm: float | None = None
    """Largest global norm; ``None``: the usual one."""
    max_interventions: int = 1000
    """Most interventions in a run."""
    max_in_a_row: int = 50
    """Most steps in a row; after them the gradients are taken as they are."""

    def before_update(self, context: StepContext) -> Decision:
        usual = context.suspicion.usual_norm
        limit = usual if self.norm is None else self.norm
        if not context.suspicious or not 0.0 < limit < float("inf"):
            return Decision.PASS
        norm = context.norm
        if not limit < norm < float("inf") or not self.allows(context.step):
            return Decision.PASS
        nn.utils.clip_grad_norm_(context.parameters, limit)
        context.report(self, "clipped", details={"grad_norm": norm, "clipped_to": limit})
        return Decision.PASS


@dataclass(kw_only=True)
class SkipUpdate(_LimitedPolicy):
    """No update in a suspicious step: :meth:`TrainingMonitor.step` answers ``False``.

    A batch is lost, and the run is no longer that of its twin; weights and optimizer state stay sound. Since a
    suspicion may be a false one, use it after :class:`RecomputeStep`, or with ``certain``.

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
