"""Go back to a checkpoint that was healthy, in hindsight too, when a run fails for good."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.optim import Optimizer

from rmetric.errors import UserError
from rmetric.monitor.arguments import check_number
from rmetric.monitor.repair.checkpoints import Checkpoint, Checkpoints, HostCopies, Load, Save
from rmetric.monitor.repair.context import StepContext
from rmetric.monitor.repair.fatal import FatalRule
from rmetric.monitor.repair.lower_learning_rate import ReducedRate
from rmetric.monitor.repair.policy import Decision, Policy, TrainingStopped
from rmetric.monitor.repair.record import WENT_BACK, RepairRecord
from rmetric.state import state_of


@dataclass(kw_only=True)
class GoBack(Policy):
    """Puts weights and optimizer state back to a healthy checkpoint when a run fails for good.

    Every so many steps it makes a checkpoint. When :class:`FatalRule` says that an alert does not pass, it goes back to
    the newest checkpoint that lies ``hindsight`` records before the first sign, makes no update in this step, and lets
    training go on from there. Detectors go back as well, those of the rule; the monitor's own and its steps go on.

    By default the data, the schedule and the step count of the training loop go on: the batches in between are not used
    again. With ``save`` and ``load`` functions of your own, a snapshot can hold the loop's position too, and ``load``
    sets it back; what is saved is the state right before the update of the step.

    After it went back it rests, each time twice as long, for a fault may last. If the run fails again while it rests,
    it goes back once more when the rest is over, so that what was trained on the fault is undone: to the same
    checkpoint, then to older ones. When a newer checkpoint is known to be good, all is forgotten. After ``max_tries``
    times, or ``max_rollbacks`` in the whole run, :class:`TrainingStopped` is raised.
    """

    every: int = 50
    """Steps between checkpoints; 0: it makes none, and goes back to those that are offered (:meth:`offer`)."""
    keep: int = 2
    """Good checkpoints that are kept; some more that are too young to be known as good are held beside them."""
    hindsight: int = 25
    """Records by which a checkpoint must be older than the first sign."""
    max_tries: int = 4
    """Times that it goes back for one failure."""
    max_rollbacks: int = 20
    """Times that it goes back in a run."""
    rest: int = 25
    """Steps that it rests after the first time; doubled with each further try."""
    learning_rate_factor: float = 1.0
    """Factor on the learning rate after it went back, in (0, 1]."""
    learning_rate_steps: int = 100
    """Updates with that factor."""
    save: Save | None = None
    """Makes a snapshot; ``None``: weights and optimizer state are copied to the host's memory."""
    load: Load | None = None
    """Loads a snapshot; given with ``save``, or for those that are offered."""
    discard: Callable[[Any], object] | None = None
    """Called with each snapshot that is not needed any more."""
    on_rollback: Callable[[RepairRecord], object] | None = None
    """Called after it went back: ``record.details["to_step"]`` is the step that training goes on from."""
    rule: FatalRule = field(default_factory=FatalRule)
    """Tells when a run fails for good."""
    _checkpoints: Checkpoints = field(init=False, repr=False)
    _rate: ReducedRate | None = field(init=False, repr=False, default=None)
    _offered: list[Any] = field(init=False, repr=False, default_factory=list)
    _verdict: str = field(init=False, repr=False, default="")
    _waiting: str = field(init=False, repr=False, default="")
    """Verdict of a step in which it rested: what is trained until the rest is over is undone as well."""
    _undone: int = field(init=False, repr=False, default=0)
    """Steps of the monitor that were undone."""
    _went_back_at: int = field(init=False, repr=False, default=-1)
    _went_to: int = field(init=False, repr=False, default=0)
    """Position of the checkpoint that it went back to."""
    _tries: int = field(init=False, repr=False, default=0)
    """Times that it went back for the failure that is not over yet; 0: there is none."""
    _rollbacks: int = field(init=False, repr=False, default=0)
    _announced_at: int = field(init=False, repr=False, default=-1)
    """Step of the latest record with a change of the training that was announced."""
    _announcement_due: bool = field(init=False, repr=False, default=False)
    """Whether the rule has gone back behind that change, which the training loop has not."""
    _silent_until: int = field(init=False, repr=False, default=-1)
    """Step up to which it is not said again that there is no checkpoint."""

    def __post_init__(self) -> None:
        if self.every and (self.save is None) != (self.load is None):
            raise UserError("GoBack needs save= and load= together, or neither")
        if not 0.0 < self.learning_rate_factor <= 1.0:
            raise UserError(f"learning_rate_factor is {self.learning_rate_factor}; it must be above 0 and at most 1")
        check_number("every", self.every, least=0, example=50)
        check_number("keep", self.keep, "checkpoints", example=2)
        check_number("max_tries", self.max_tries, "times", example=4)
        self._checkpoints = Checkpoints(self.keep, self.hindsight, self._drop)

    def attach(self, model: nn.Module, optimizer: Optimizer) -> None:
        if self.load is None and not self.every:
            raise UserError("GoBack(every=0) needs load=, or an adapter whose framework writes checkpoints")
        self._rate = ReducedRate(optimizer, self.learning_rate_factor)
        if self.load is None:
            copies = HostCopies(model, optimizer)
            self.save, self.load = copies.save, copies.load

    def offer(self, snapshot: Any) -> None:
        """Offer a checkpoint that the training loop has made, between two steps; call it in every process.

        It is kept (until ``discard`` is called with it) unless there is a sign that the training is not healthy.
        """
        self._offered.append(snapshot)

    def _drop(self, snapshot: Any) -> None:
        if self.discard is not None:
            self.discard(snapshot)

    # -- in a step ----------------------------------------------------------------------------------------------------

    def inspect(self, context: StepContext) -> bool:
        self._verdict = self._judge(context)
        return bool(self._verdict) or self._due(context)

    def _judge(self, context: StepContext) -> str:
        """Feed the rule with the record of the step before; that of the step in which weights changed says nothing."""
        observation = context.observation
        if observation is None:
            return ""
        if observation.announced:
            self._announced_at, self._announcement_due, self._waiting = observation.step, True, ""
        if observation.step <= self._went_back_at:
            return ""
        kept = observation.but_with(step=observation.step - self._undone)
        if self._announcement_due:
            kept.planned_changes, self._announcement_due = 1.0, False
        self._waiting = self.rule.update(kept, ahead=self._undone) or self._waiting
        return self._waiting if context.step > self._resting_until else ""

    @property
    def _resting_until(self) -> int:
        return self._went_back_at + self.rest * 2 ** (self._tries - 1) if self._tries else -1

    def _due(self, context: StepContext) -> bool:
        own = self.every and (not self._checkpoints.held or context.step % self.every == 0)
        return bool(own or self._offered)

    def before_update(self, context: StepContext) -> Decision:
        """All processes agree on the earliest first sign, and so on the checkpoint."""
        earliest = context.votes.minimum(math.inf if self.rule.first_sign is None else self.rule.first_sign)
        first_sign = None if math.isinf(earliest) else int(earliest)
        fails = context.any(bool(self._verdict))
        healthy = first_sign is None and not fails
        offered, self._offered = self._offered, []
        for snapshot in offered:
            self._add(context, snapshot) if healthy else self._drop(snapshot)
        if fails:
            return self._go_back(context, first_sign)
        if self.every and (healthy or not self._checkpoints.held):
            assert self.save is not None
            self._add(context, self.save())
        return Decision.PASS

    def _add(self, context: StepContext, snapshot: Any) -> None:
        position = context.step - self._undone
        self._checkpoints.add(Checkpoint(position, context.step, snapshot, state_of(self.rule)))
        until = self._checkpoints.good_until(position, None)
        if any(self._went_to < held.position <= until for held in self._checkpoints.held):
            self._tries, self._waiting = 0, ""

    def _go_back(self, context: StepContext, first_sign: int | None) -> Decision:
        because = self._verdict or "another process fails for good"
        if not self._checkpoints.held:
            return self._without_checkpoint(context, because)
        if self._tries >= self.max_tries or self._rollbacks >= self.max_rollbacks:
            attempts = self._tries if self._tries >= self.max_tries else self._rollbacks
            context.report(self, "gave_up", details={"because": because, "attempts": attempts})
            raise TrainingStopped(context.step, f"{because}, after {attempts} attempts to go back")
        position = context.step - self._undone
        chosen = self._checkpoints.choose(self._until(position, first_sign))
        self._load(chosen, context.step)
        details = {
            "to_step": chosen.step,
            "steps_lost": position + 1 - chosen.position,
            "attempt": self._tries,
            "max_tries": self.max_tries,
            "because": because,
        }
        record = context.report(self, WENT_BACK, details=details)
        if self.on_rollback is not None:
            self.on_rollback(record)
        return Decision.SKIP

    def _without_checkpoint(self, context: StepContext, because: str) -> Decision:
        """Say so, and now and then again if this goes on. The rule keeps its sign, so that nothing offered is taken."""
        self._waiting = ""
        if context.step > self._silent_until:
            context.report(self, "no_checkpoint", details={"because": because})
            self._silent_until = context.step + self.rest
        return Decision.PASS

    def _load(self, chosen: Checkpoint, step: int) -> None:
        assert self.load is not None and self._rate is not None
        self.load(chosen.snapshot)
        self.rule, self._waiting = self.rule.resumed(chosen.history), ""
        self._tries, self._rollbacks = self._tries + 1, self._rollbacks + 1
        self._went_back_at, self._went_to = step, chosen.position
        self._undone = step + 1 - chosen.position
        self._announcement_due = self._announced_at >= chosen.step
        if self.learning_rate_factor < 1.0:
            self._rate.left = self.learning_rate_steps

    def _until(self, position: int, first_sign: int | None) -> int:
        """Latest position to go back to: by hindsight; the same one again, as the fault may last; then an older one."""
        if not self._tries:
            return self._checkpoints.good_until(position, first_sign)
        return self._went_to if self._tries % 2 else self._went_to - 1

    @property
    def rate_factor(self) -> float:
        return self._rate.now if self._rate is not None else 1.0

    # -- checkpoints of the monitor -----------------------------------------------------------------------------------

    @property
    def _counters(self) -> dict[str, Any]:
        names = (
            "_waiting", "_undone", "_went_back_at", "_went_to", "_tries", "_rollbacks", "_announced_at",
            "_announcement_due",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def state_dict(self) -> dict[str, Any]:
        """Snapshots are not part of it: a run that is resumed makes a new one in its first step, or is offered one."""
        rate_left = self._rate.left if self._rate is not None else 0
        return {"rule": state_of(self.rule), "counters": self._counters, "rate_left": rate_left}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rule = self.rule.resumed(state["rule"])
        for name in self._counters:
            setattr(self, name, state["counters"][name])
        if self._rate is not None:
            self._rate.left = state["rate_left"]

    def close(self) -> None:
        self._checkpoints.held = []
        if self._rate is not None:
            self._rate.close()
