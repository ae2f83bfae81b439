"""The contract of a repair policy, the end of a run that one stops, and a rule for when to intervene."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn
from torch.optim import Optimizer

from rmetric.errors import UserError
from rmetric.monitor.repair.context import StepContext
from rmetric.monitor.repair.trigger import Alarm

EXIT_STATUS = 3
"""Exit status of a process whose training a policy has stopped."""


class Decision(Enum):
    """Fate of an update."""

    PASS = "pass"
    """This policy has nothing more to say; the next one is asked."""
    ACCEPT = "accept"
    """The gradients as they are now are sound: make the update, ask nobody else."""
    SKIP = "skip"
    """Make no update in this step."""


class Policy:
    """Repairs steps that look wrong. One policy serves one monitor.

    All processes of a distributed training call the same methods in the same order: :meth:`inspect` may say something
    else in each of them, and the others are called where at least one of them has said yes.
    """

    is_attached = False
    """Whether it serves a monitor, or has served one."""

    @property
    def rate_factor(self) -> float:
        """Factor on the scheduled learning rate with which the next update is made, if it is made; the record says so.

        Read after :meth:`before_update`.
        """
        return 1.0

    def attach(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Begin to serve the monitor of this model. Raises :class:`UserError` for a model it cannot serve."""

    def inspect(self, context: StepContext) -> bool:
        """Return whether to call :meth:`before_update` in this step. Cheap; no collective may be called here."""
        return context.alarm is not None

    def before_update(self, context: StepContext) -> Decision:
        """Decide about the update: gradients are there, the optimizer has not stepped."""
        raise NotImplementedError

    def after_update(self) -> None:
        """Act after the optimizer's step; weights may be changed here."""

    def end_update(self) -> None:
        """Act after :meth:`after_update` of all policies: the next step must find memory as it is now."""

    def state_dict(self) -> dict[str, Any]:
        """State that a resumed run needs: plain values and tensors."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""

    def close(self) -> None:
        """Give back every hook. May be called twice."""


class TrainingStopped(SystemExit):
    """A policy has stopped the training; where nobody catches it, the process ends with status 3.

    :meth:`TrainingMonitor.step` raises it, in every process of a distributed training, after the record of the step is
    written and the log is closed.
    """

    def __init__(self, step: int, verdict: str) -> None:
        super().__init__(EXIT_STATUS)
        self.step = step
        """Step that the training had reached."""
        self.verdict = verdict
        """Why it was stopped, for people."""
        self.reason = "STOPPED"
        """Reason in the last line of the log."""

    def __str__(self) -> str:
        return f"training stopped at step {self.step}: {self.verdict}"


class Policies(tuple[Policy, ...]):
    """Several policies, asked in their order: ``Policies(RestoreState(), RecomputeStep(), SkipUpdate())``."""

    __slots__ = ()

    def __new__(cls, *policies: Policy) -> Policies:
        return super().__new__(cls, policies)


def checked_policies(policies: Policy | Iterable[Policy] | None) -> tuple[Policy, ...]:
    """Those that ``policy=`` of a monitor names; raises :class:`UserError` for what it cannot take."""
    several = () if policies is None else (*policies,) if isinstance(policies, Iterable) else (policies,)
    if not all(isinstance(policy, Policy) for policy in several):
        raise UserError("policy= takes policies such as RecomputeStep(max_retries=2), or a list of them")
    if len({id(policy) for policy in several}) < len(several):
        raise UserError("policy= has the same policy twice; make two of them")
    served = next((type(policy).__name__ for policy in several if policy.is_attached), None)
    if served is not None:
        raise UserError(f"policy= has a {served} that has served another monitor; make a new one")
    return several


@dataclass(kw_only=True)
class InterventionRule:
    """Tells when to intervene: at a certain alarm, at alarms several steps in a row, or after a named detector's alert.

    A single unusual step is no reason to change a training: of a thousand healthy steps one to five are unusual.
    """

    on: Sequence[str] = ()
    """Detectors of the monitor whose alerts count as well, such as ``r_metric_robust``."""
    patience: int = 3
    """Unusual steps in a row that make an intervention, all by the bar at the start of the row: a second computation
    that agrees raises it, and makes what lasts no less unusual."""
    falls: bool = True
    """Whether steps count in which all that is unusual is unusually low."""
    rest: int = 50
    """Least number of steps between two interventions."""
    most: int = 10
    """Most interventions in a run."""
    _row: int = field(init=False, repr=False, default=0)
    _factors: NDArray[np.float64] | None = field(init=False, repr=False, default=None)
    """Factors k of the first step of the row; ``None``: there is no row, or they are not known."""
    _next_step: int = field(init=False, repr=False, default=0)
    _done: int = field(init=False, repr=False, default=0)

    def applies(self, context: StepContext) -> bool:
        """Return whether to intervene in this step; call it once a step."""
        self._count(context)
        if self._done >= self.most or context.step < self._next_step:
            return False
        certain = context.alarm is not None and context.alarm.certain
        return certain or self._row >= self.patience or bool({*self.on} & {*context.alerts})

    def _count(self, context: StepContext) -> None:
        if not self._counts(context.alarm) and (
            self._factors is None or not self._counts(context.alarm_by(self._factors))
        ):
            self._row, self._factors = 0, None
            return
        self._row += 1
        if self._factors is None:
            self._factors = context.suspicion.factors

    def _counts(self, alarm: Alarm | None) -> bool:
        return alarm is not None and (self.falls or not alarm.falls)

    def record(self, step: int) -> None:
        self._done += 1
        self._next_step = step + self.rest
        self._row, self._factors = 0, None

    def state_dict(self) -> dict[str, Any]:
        factors = None if self._factors is None else self._factors.tolist()
        return {"row": self._row, "factors": factors, "next_step": self._next_step, "done": self._done}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._row, self._next_step, self._done = state["row"], state["next_step"], state["done"]
        factors = state.get("factors")  # an older state has none
        self._factors = None if factors is None else np.array(factors)


@dataclass(kw_only=True)
class InterventionPolicy(Policy):
    """A policy that intervenes by a rule, and then leaves the step to the next policy."""

    when: InterventionRule = field(default_factory=InterventionRule)
    """Rule for when to intervene, and how often."""

    def inspect(self, context: StepContext) -> bool:
        return self.when.applies(context)

    def before_update(self, context: StepContext) -> Decision:
        self.when.record(context.step)
        return self.intervene(context)

    def intervene(self, context: StepContext) -> Decision:
        """Intervene, and :meth:`StepContext.report` it."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        return {"when": self.when.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.when.load_state_dict(state["when"])


@dataclass(kw_only=True)
class LimitedPolicy(Policy):
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
