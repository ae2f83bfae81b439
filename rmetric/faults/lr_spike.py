"""A learning rate that is far too high for a while."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmetric.architectures import Architecture
from rmetric.faults.base import Fault, register_fault
from rmetric.faults.learning_rate import dose_of_factor, doses_at_onset, learning_rate_times, require_factor
from rmetric.faults.processes import BoolsRT, Processes
from rmetric.faults.response import effect_of, respond
from rmetric.streams import RunStreams

if TYPE_CHECKING:
    from rmetric.live.run import LiveRun


@register_fault("LR_SPIKE")
@dataclass(frozen=True, kw_only=True)
class LrSpike(Fault):
    """The scheduler returns a multiple of the learning rate for some steps (a wrong restart, a unit error).

    Within some steps the loss jumps by a share that grows with the factor; what the long steps tore down heals over
    tens to hundreds of steps, or not at all. Under AdamW real runs do not run away to infinity.

    Simulated, the dose is ln(factor × scheduled over peak learning rate): a spike late in the schedule is weaker.
    """

    source = "factors and duration: Fatima 2025 (authors' files); stability limit: Cohen et al. 2021, arXiv 2103.00065"
    severities = {"low": {"factor": 5.0}, "medium": {"factor": 15.0}, "high": {"factor": 25.0}}  # noqa: RUF012

    factor: float = 15.0
    """Multiple of the scheduled learning rate."""
    duration_steps: int = 20

    def __post_init__(self) -> None:
        require_factor(self.name, self.factor)

    def simulate(self, state: Processes, active: BoolsRT, rng: RunStreams) -> None:
        effect = effect_of(self, state, doses_at_onset(self.factor, state, active))
        respond(self, state, active, rng, effect)
        state.learning_rate_factor[active] *= self.factor

    def dose(self, architecture: Architecture) -> float:
        return dose_of_factor(self.factor)

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        return learning_rate_times(training, self.factor)
