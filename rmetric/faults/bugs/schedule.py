"""Bugs of the learning-rate schedule: it runs too fast, has ended, or begins again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmetric.errors import UserError
from rmetric.faults.base import register_fault
from rmetric.faults.bugs.base import Bug

if TYPE_CHECKING:
    from rmetric.live.run import LiveRun

LOOK_AHEAD_STEPS = tuple(2**power for power in range(13))
"""Steps after which a schedule is looked at: where none of them tells, it makes no difference how it is followed."""


@register_fault("LEARNING_RATE_ZERO")
@dataclass(frozen=True, kw_only=True)
class LearningRateZero(Bug):
    """The learning rate is 0: gradients are computed, and no weight changes.

    A schedule that was given too few steps ends there, and so does one that divides whole numbers.
    """

    source = "transformers, get_linear_schedule_with_warmup: 0 from the last step that it was told on"

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        def stop(batch: Any) -> Any:
            for group in training.optimizer.param_groups:
                group["lr"] = 0.0
            return batch

        return training.at("batch", stop)


@register_fault("SCHEDULE_STEPPED_TWICE")
@dataclass(frozen=True, kw_only=True)
class ScheduleSteppedTwice(Bug):
    """``scheduler.step()`` is called twice a step (or once a micro-batch, once a process): the schedule runs too fast.

    Training goes on with the low rates of a schedule's end, or through its restarts, long before its time.
    """

    source = "Accelerate documentation, step_scheduler_with_optimizer (a scheduler is stepped once a process)"
    severities = {"low": {}, "medium": {}, "high": {"times": 8}}
    at_least = {"times": 2}

    times: int = 2
    """Steps of the schedule in a step of the training, at least 2."""

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        if _is_constant(training):
            raise UserError(f"{self.name} changes nothing: the learning rate of this run is constant from here")
        extra, ahead = self.times - 1, 0

        def advance(by: Any = None) -> Any:
            nonlocal ahead
            ahead += extra
            training.schedule_ahead_steps += extra
            return by

        advance()
        try:
            with training.at("batch", advance):  # this step has its rate already: for the next one
                yield
        finally:
            training.schedule_ahead_steps -= ahead


def _is_constant(training: LiveRun) -> bool:
    """Whether the learning rate stays as it is, looked at after 1, 2, 4, … steps."""
    now = training.rate_at(training.step + 1)
    return all(training.rate_at(training.step + 1 + steps) == now for steps in LOOK_AHEAD_STEPS)


@register_fault("SCHEDULE_RESTARTED")
@dataclass(frozen=True, kw_only=True)
class ScheduleRestarted(Bug):
    """Training is resumed without the state of the schedule, which begins again: warmup, peak and all."""

    source = "PyTorch documentation, torch.optim.lr_scheduler (a scheduler has a state_dict of its own)"

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        begun = training.step
        if all(training.rate_at(steps) == training.rate_at(begun + steps) for steps in LOOK_AHEAD_STEPS):
            raise UserError(f"{self.name} changes nothing: the schedule of this run goes on as it has begun")
        training.schedule_ahead_steps -= begun
        try:
            yield
        finally:
            training.schedule_ahead_steps += begun
