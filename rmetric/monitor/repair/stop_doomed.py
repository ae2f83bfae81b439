"""Stop a run that fails for good, before it has used up its time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmetric.monitor.repair.context import StepContext
from rmetric.monitor.repair.fatal import FatalRule
from rmetric.monitor.repair.policy import Decision, Policy, TrainingStopped
from rmetric.monitor.repair.record import RepairRecord
from rmetric.state import state_of


def patient_rule() -> FatalRule:
    """A rule that waits until hardly any run comes back: 80 of 100 losses above the level before the first sign."""
    return FatalRule(stays=80, of=100, quiet=100, broken=20, broken_evaluations=5)


@dataclass(kw_only=True)
class StopDoomed(Policy):
    """Stops a run that fails for good, by raising :class:`TrainingStopped`, or lets a function decide.

    The rule of :class:`GoBack`, with more patience: a run that is stopped wrongly costs more than one that goes back
    wrongly. List it after GoBack, whose attempts it then sees fail.
    """

    rule: FatalRule = field(default_factory=patient_rule)
    """Tells when a run fails for good."""
    decide: Callable[[RepairRecord], bool] | None = None
    """Called with what was found, in every process: whether to stop; ``None``: stop. After a no it asks no more."""
    _verdict: str = field(init=False, repr=False, default="")
    _answered: bool = field(init=False, repr=False, default=False)

    def inspect(self, context: StepContext) -> bool:
        judged = context.observation is not None and not self._answered
        self._verdict = self.rule.update(context.observation) if judged else ""  # type: ignore[arg-type]
        return bool(self._verdict)

    def before_update(self, context: StepContext) -> Decision:
        because = self._verdict or "another process fails for good"
        record = context.report(self, "doomed", details={"because": because})
        if context.any(self.decide is None or bool(self.decide(record))):
            raise TrainingStopped(context.step, because)
        self._answered = True
        return Decision.PASS

    def state_dict(self) -> dict[str, Any]:
        return {"rule": state_of(self.rule), "answered": self._answered}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rule, self._answered = self.rule.resumed(state["rule"]), state["answered"]
