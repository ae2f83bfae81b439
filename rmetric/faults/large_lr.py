"""A learning rate that stays too high."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rmetric.architectures import Architecture
from rmetric.faults.base import Fault, register_fault
from rmetric.faults.learning_rate import dose_of_factor, doses_at_onset, learning_rate_times, require_factor
from rmetric.faults.processes import BoolsRT, Processes
from rmetric.faults.response import effect_of, respond
from rmetric.streams import RunStreams

if TYPE_CHECKING:
    from rmetric.live.run import LiveRun


@register_fault("LARGE_LR")
@dataclass(frozen=True, kw_only=True)
class LargeLr(Fault):
    """The learning rate is a multiple of what it should be until the run ends.

    Simulated, it responds as a spike of the same factor does (:class:`rmetric.faults.LrSpike`), and what is lost stays
    lost as long as the fault lasts: an assumption, for no run that the simulator is fitted to has this fault.
    """

    source = "Huang et al. 2026, arXiv 2606.28116 (large learning rate)"
    severities = {"low": {"factor": 3.0}, "medium": {"factor": 6.0}, "high": {"factor": 12.0}}  # noqa: RUF012

    responds_as = "LR_SPIKE"

    factor: float = 6.0
    """Multiple of the scheduled learning rate."""

    def __post_init__(self) -> None:
        require_factor(self.name, self.factor)

    def simulate(self, state: Processes, active: BoolsRT, rng: RunStreams) -> None:
        effect = effect_of(self, state, doses_at_onset(self.factor, state, active))
        lasting = {"floor": np.maximum(effect["floor"], effect["jump"]), "kick": 0.0 * effect["kick"]}
        respond(self, state, active, rng, {**effect, **lasting})
        state.learning_rate_factor[active] *= self.factor

    def dose(self, architecture: Architecture) -> float:
        return dose_of_factor(self.factor)

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        return learning_rate_times(training, self.factor)
