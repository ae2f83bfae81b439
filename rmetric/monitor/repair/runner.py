"""Run the policies of a monitor in their order, refuse what none of them may let pass, keep their records."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from rmetric.errors import LOGGER, on_one_line
from rmetric.measurements import Observation
from rmetric.monitor.ending import close_all, closed_on_error
from rmetric.monitor.estimators import SCALER_PATIENCE
from rmetric.monitor.parameters import ModelParameters
from rmetric.monitor.repair.context import PeerGaveUpError, Recompute, RunContext, StepContext
from rmetric.monitor.repair.policy import Decision, Policy, TrainingStopped
from rmetric.monitor.repair.record import WENT_BACK, RepairRecord
from rmetric.monitor.repair.step_start import StepStart
from rmetric.monitor.repair.trigger import Suspicion
from rmetric.monitor.transfer import StepComputation
from rmetric.monitor.votes import Votes
from rmetric.records import Event
from rmetric.state import restore, state_of
from rmetric.verdict import REPAIRS_ENDED


@dataclass(kw_only=True)
class RefuseUpdate(Policy):
    """No update from gradients that are not finite: it would destroy the weights and the optimizer's state.

    The monitor asks it after all other policies. With a gradient scaler it never refuses: the scaler makes no such
    update, and must see the gradients to find its scale. Only the first of several steps in a row is recorded.
    """

    _refused_before: bool = field(init=False, repr=False, default=False)

    def before_update(self, context: StepContext) -> Decision:
        refused = context.scaler is None and context.not_finite()
        if refused and not self._refused_before:
            context.report(self, "refused")
        self._refused_before = refused
        return Decision.SKIP if refused else Decision.PASS

    def state_dict(self) -> dict[str, Any]:
        return {"refused_before": self._refused_before}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._refused_before = state["refused_before"]


class PolicyRunner:
    """Runs the policies of a monitor.

    An error in here ends the repairs, never the training: the gradients that the training loop made are put back.

    The model gets one forward pre-hook, the optimizer one hook.
    """

    def __init__(
        self,
        policies: Sequence[Policy],
        *,
        model: nn.Module,
        parameters: ModelParameters,
        optimizer: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler | None,
        measure: Callable[[int, Tensor | float], StepComputation],
        note: Callable[[Event], None],
        vocabulary: int | None,
        votes: Votes,
    ) -> None:
        self._policies = policies
        self._last_word = RefuseUpdate()
        suspicion = Suspicion(vocabulary=vocabulary, patience=0 if scaler is None else SCALER_PATIENCE)
        suspicion.watch(parameters.names)
        self._note, self._optimizer = note, optimizer
        with closed_on_error() as made:
            for policy in self._policies:
                policy.attach(model, optimizer)
                made(policy).is_attached = True
        self._run = RunContext(
            model=model,
            optimizer=optimizer,
            scaler=scaler,
            names=parameters.names,
            parameters=parameters.tensors,
            start=StepStart(model),
            suspicion=suspicion,
            measure=measure,
            record=self._write,
            votes=votes,
        )
        self._handle = optimizer.register_step_post_hook(self._updated)
        self.enabled, self._closed = True, False
        self._gave_up = False
        """True if an error has ended the repairs, here or in the run that is resumed; until they are at work again."""
        self._is_asked = self._withdrawn = False
        """Whether the other processes were asked in this step; and whether they know that this one gave up."""
        self._asked_before: list[bool] = []
        """Whether each policy was asked in the step before, the same in all processes."""
        self.asked_in = 0
        """Latest step before whose update the policies were asked."""
        self.rate_factor = 1.0
        """Factor on the scheduled learning rate in the update of that step."""
        self._stopped: TrainingStopped | None = None
        self._went_back_at = -1
        self.log: list[RepairRecord] = []
        """All interventions so far."""

    def before_update(
        self,
        step: int,
        computation: StepComputation,
        recompute: Recompute | None,
        alerts: Sequence[str],
        observation: Observation | None,
    ) -> tuple[StepComputation, bool]:
        """Return the computation that the update is to be made from, and whether to make it."""
        self.asked_in = step
        if not self._run.votes.are_held():  # which says why
            self.enabled = False
        if not self.enabled:
            self.rate_factor = 1.0
            self.withdraw()
            self.close()
            return computation, True
        if self._gave_up:
            self._gave_up = False
            self._note({"event": REPAIRS_ENDED, "step": step, "over": True})
        context: StepContext | None = None
        self._is_asked = False
        try:
            seen = self._as_policies_see_it(observation)
            context = StepContext(self._run, step, computation, recompute, alerts, seen)
            proceed = self._ask(context) and self._last_word.before_update(context) is not Decision.SKIP
            if proceed:
                self._run.suspicion.accept(context.computation.numbers, sound=context.sound)
        except TrainingStopped as verdict:  # raised by the monitor, when the record of this step is written
            self._stopped, proceed = verdict, False
        except Exception as error:  # noqa: BLE001 - a repair must not break what it repairs
            proceed = self._after_error(error, computation, context)
            self._give_up(f"in step {step}", error)
        self.rate_factor = math.prod(policy.rate_factor for policy in self._policies)
        if context is None:
            return computation, proceed
        if not (proceed and context.computation.numbers.finite):  # a gradient scaler leaves the latter out
            self._run.start.mend_buffers()
        self._run.start.end_step()
        return context.computation, proceed

    def _after_error(self, error: Exception, computation: StepComputation, context: StepContext | None) -> bool:
        """Put back what the loop has computed; return whether to make the update from it."""
        if context is not None:
            context.restore()
            if context.all_gave_up:
                self._withdrawn = True
                return self._last_word.before_update(context) is not Decision.SKIP
        if isinstance(error, PeerGaveUpError):
            self._withdrawn = True
        elif not self._is_asked:
            self.withdraw()
        # Alone in an error, a process of several must not step out of line; the others would go on.
        return self._run.votes.several or self._run.scaler is not None or computation.numbers.finite

    def _ask(self, context: StepContext) -> bool:
        asked = [policy.inspect(context) for policy in self._policies]
        self._is_asked = True
        settled = context.settle_alarm(asked)
        wanted = [policy for policy, wants in zip(self._policies, settled, strict=True) if wants]
        # Whom an error keeps from the next vote the others would wait for. A policy that is asked in every step only
        # looks, as a rule: there the others learn of an error in the next step, which costs healthy steps nothing.
        checks = self._run.votes.several and (context.suspicious or settled != self._asked_before)
        self._asked_before = settled
        for policy in wanted:
            try:
                decision = _decision(policy, context)
            except Exception as error:
                if checks:
                    context.give_up(error)
                raise
            if checks:
                context.check_peers()
            if decision is not Decision.PASS:
                context.sound = decision is Decision.ACCEPT
                return decision is Decision.ACCEPT
        return True

    def _write(self, repair: RepairRecord) -> None:
        self.log.append(repair)
        if repair.verdict == WENT_BACK:
            self._went_back_at = repair.step
        self._note(repair.event())

    def went_back(self, step: int) -> bool:
        """Return whether a policy has gone back in this step: the next record is of an earlier course."""
        return step == self._went_back_at

    def _as_policies_see_it(self, observation: Observation | None) -> Observation | None:
        """A record without what policies did themselves, for they know, and have rules of their own: the announcement
        that one went back, and a learning rate that is not the scheduled one.
        """
        went_back = observation is not None and observation.step == self._went_back_at + 1
        if observation is None or not (went_back or self.rate_factor < 1.0):
            return observation
        scheduled = observation["learning_rate"] / self.rate_factor
        announced = observation["planned_changes"] - (1.0 if went_back else 0.0)
        return observation.but_with(learning_rate=scheduled, planned_changes=announced)

    def raise_if_stopped(self) -> None:
        """Raise the verdict of a policy that has stopped the training, if there is one."""
        if self._stopped is not None:
            raise self._stopped

    def _updated(self, *_: Any) -> None:
        if not self.enabled:
            return
        try:
            for policy in self._policies:
                policy.after_update()
            for policy in self._policies:
                policy.end_update()
        except Exception as error:  # noqa: BLE001 - see the class
            self._give_up("after an update", error)

    def _give_up(self, where: str, error: Exception) -> None:
        """Stop repairing. Hooks are removed in the next step: one of the optimizer cannot be removed while it runs."""
        LOGGER.warning(
            "nothing is repaired any more, training goes on: %s, %s",
            where, on_one_line(error), exc_info=LOGGER.isEnabledFor(logging.DEBUG),
        )  # fmt: skip
        self.enabled, self._gave_up = False, True
        self._note({"event": REPAIRS_ENDED, "step": self.asked_in})

    def withdraw(self) -> None:
        """Let the others know, once, that this process repairs nothing any more; they ask it in their next step."""
        if not self._withdrawn:
            with suppress(RuntimeError):  # a peer has died: training learns of it at its next collective
                if self._run.votes.are_held():
                    self._withdrawn = True
                    self._run.vote([False] * len(self._policies), gave_up=True)

    def close(self) -> None:
        self.enabled = False
        if self._closed:
            return
        self._closed = True
        self._handle.remove()
        close_all([self._run.start, *self._policies])

    def state_dict(self) -> dict[str, Any]:
        return {
            "suspicion": state_of(self._run.suspicion),
            "policies": {str(index): policy.state_dict() for index, policy in enumerate(self._policies)},
            "kinds": [type(policy).__name__ for policy in self._policies],
            "last_word": self._last_word.state_dict(),
            "went_back_at": self._went_back_at,
            "gave_up": self._gave_up,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; policies of other kinds than those begin anew."""
        self._run.suspicion.watch(state["suspicion"]["_names"])
        restore(self._run.suspicion, state["suspicion"])
        self._last_word.load_state_dict(state["last_word"])
        self._went_back_at = state["went_back_at"]
        self._gave_up = state.get("gave_up", False)  # states of before do not say
        for index, (policy, kind) in enumerate(zip(self._policies, state["kinds"], strict=False)):
            if type(policy).__name__ == kind:
                policy.load_state_dict(state["policies"][str(index)])


def _decision(policy: Policy, context: StepContext) -> Decision:
    decision = policy.before_update(context)
    if not isinstance(decision, Decision):  # None, of one that only looks, would skip every update
        given = f"{type(policy).__name__}.before_update gave {decision!r}"
        raise TypeError(f"{given}; Decision.PASS, ACCEPT or SKIP is due")
    return decision
