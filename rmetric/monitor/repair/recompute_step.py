"""Compute a suspicious step a second time: a transient fault does not come twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmetric.errors import LOGGER, UserError
from rmetric.monitor.repair.context import GradientSnapshot, StepContext
from rmetric.monitor.repair.policy import Decision, Policy
from rmetric.state import restore, state_of

REHEARSAL_STEP = 3
"""``DistributedDataParallel`` lays out its buckets anew after the first step and sums in another order from then on;
the monitor's own hooks are in place after the second."""


@dataclass(kw_only=True)
class TokenBucket:
    """Token bucket: limits a rate in the long run and allows a few at once."""

    share: float
    """Tokens gained a step; 0.005 are five in a thousand steps."""
    burst: float
    """Burst capacity: tokens in the full bucket, which it is in the beginning."""
    _left: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._left = self.burst

    def tick(self) -> None:
        self._left = min(self.burst, self._left + self.share)

    def take(self) -> bool:
        """Take a token; return whether there was one."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def give_back(self) -> None:
        self._left = min(self.burst, self._left + 1.0)


@dataclass(kw_only=True)
class RecomputeStep(Policy):
    """Vetoes the update of a suspicious step, computes it again and compares the gradients bit for bit.

    The gradients are those of the parameters that the optimizer updates.

    The comparison ends in one of four ways:

    - ``transient``: they differ, or the new step is not suspicious: something went wrong that did not come again. The
      update is made from the new ones; if these are suspicious as well, not before a further computation agrees with
      them.
    - ``agrees``: they are the same: the fault is persistent, or a software error, or there is none. Training goes on as
      without this policy, the next one is asked.
    - ``unsettled``: ``max_retries`` computations were all different and suspicious; the next policy is asked.
    - ``random``: a step cannot be computed a second time: without any suspicion it is different in each of three
      computations (kernels that are not deterministic, or a ``recompute`` that takes a new batch, unless a
      ``tolerance`` covers it), or no place is known from which it draws the same random numbers. If the rehearsal says
      so, nothing is recomputed in this run.

    With deterministic kernels the run goes on as if the fault had never been, to the last bit. A fault that the
    training loop, the data or the optimizer's state bring into every computation is not repaired by this.

    **Source:** recomputing the most recent step when its update is suspicious: Altenbernd, Wiesner, Kao 2026, arXiv
    2604.00726.
    """

    max_retries: int = 2
    """Further computations of one step, at most."""
    tolerance: float = 0.0
    """Largest share of a tensor's gradient by which two computations may differ and still agree; 0: bit for bit."""
    max_share: float = 0.003
    """Largest share of steps that are computed again without a finding, in the long run. Unusual steps and those with
    numbers that no healthy step has are counted apart, so that neither uses up what the others need."""
    burst: int = 20
    """Number of such steps that are allowed at once; then one whenever the share allows it."""
    rehearsal: bool = True
    """Compute the third step twice, to know that this training computes the same twice."""
    computations: int = field(init=False, default=0)
    """Further computations so far."""
    _steps: int = field(init=False, repr=False, default=0)
    _rehearsed: bool = field(init=False, repr=False, default=False)
    _off: bool = field(init=False, repr=False, default=False)
    _warned: bool = field(init=False, repr=False, default=False)
    _budgets: dict[str, TokenBucket] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.max_retries, int) or self.max_retries < 1:
            raise UserError(f"max_retries must be a whole number, at least 1, not {self.max_retries!r}")
        if not self.tolerance >= 0.0:
            raise UserError(f"tolerance is {self.tolerance}; it must be a share of the gradient, 0 or more")
        self._rehearsed = not self.rehearsal
        self._budgets = {kind: TokenBucket(share=self.max_share, burst=self.burst) for kind in ("unusual", "certain")}

    @property
    def working(self) -> bool:
        """True if a suspicious step would be computed again: not if this training does not compute the same twice."""
        return not self._off

    def inspect(self, context: StepContext) -> bool:
        for budget in self._budgets.values():
            budget.tick()
        self._steps += 1
        return not self._off and (self._to_rehearse or context.worth_recomputing)

    @property
    def _to_rehearse(self) -> bool:
        return not self._rehearsed and self._steps >= REHEARSAL_STEP

    def before_update(self, context: StepContext) -> Decision:
        if not context.can_recompute:
            self._warn_once(context)
            return Decision.PASS
        if not self._rehearsed:  # also for an alarm that comes before its time
            return self._rehearse(context)
        budget = self._budgets["certain" if context.certain else "unusual"]
        if not context.suspicious or not budget.take():
            return Decision.PASS
        first = context.keep()
        verdict = self._settle(context, first)
        if verdict == "transient":
            budget.give_back()
        self._report(context, first, verdict)
        return Decision.ACCEPT if verdict == "transient" else Decision.PASS

    def _rehearse(self, context: StepContext) -> Decision:
        """Compute a step until two results in a row agree, which repairs a fault in this very step as well."""
        self._rehearsed = True
        first = context.keep()
        verdict = self._settle(context, first, retries=max(2, self.max_retries), strict=True)
        if verdict == "random" and self._steps < REHEARSAL_STEP:  # what sets a training up draws, too
            self._rehearsed = False
            return Decision.PASS
        if verdict in ("unsettled", "random"):
            self._off, verdict = True, "random"
            LOGGER.warning(
                "no step is computed again: this training does not compute the same twice "
                "(torch.use_deterministic_algorithms may help, or RecomputeStep(tolerance=1e-3); where recompute draws "
                "random numbers before the model's forward pass, nothing may draw any between two steps)"
            )
        if verdict != "agrees":
            self._report(context, first, verdict)
        if verdict == "random":
            context.restore()
        return Decision.ACCEPT if verdict == "transient" else Decision.PASS

    def _settle(self, context: StepContext, first: GradientSnapshot, *, retries: int = 0, strict: bool = False) -> str:
        """Compute again until two in a row agree, or (unless ``strict``) until one is not suspicious."""
        before = first
        for _ in range(retries or self.max_retries):
            self.computations += 1
            if not context.recompute():
                return "random"
            if not context.suspicious and not strict:  # also where another optimizer's gradient alone was wrong
                return "transient"
            if not context.differing(before, self.tolerance):
                if before is not first:
                    return "transient"
                context.restore()  # what a tolerance has covered, too
                context.sound = True
                return "agrees"
            before = context.keep()
        return "unsettled"

    def _report(self, context: StepContext, first: GradientSnapshot, verdict: str) -> None:
        differing = context.differing(first, self.tolerance) if verdict != "agrees" else ()
        workers = context.differing_workers(first, self.tolerance) if verdict != "agrees" else ()
        context.report(self, verdict, differing=differing, workers=workers)

    def _warn_once(self, context: StepContext) -> None:
        if context.suspicious and not self._warned:
            self._warned = True
            LOGGER.warning("a suspicious step cannot be computed again: call monitor.step(loss, recompute=compute)")

    def state_dict(self) -> dict[str, Any]:
        return {
            "steps": self._steps,
            "rehearsed": self._rehearsed,
            "off": self._off,
            "budgets": state_of(self._budgets),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._steps, self._rehearsed, self._off = state["steps"], state["rehearsed"], state["off"]
        restore(self._budgets, state["budgets"])
