"""A learning rate that is far too high: for a while, or for good."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rmetric.architectures import Architecture
from rmetric.faults.base import Fault, register_fault
from rmetric.faults.processes import BoolsRT, RunProcesses
from rmetric.faults.response import effect_of, respond
from rmetric.streams import RunStreams

if TYPE_CHECKING:
    from rmetric.live.run import LiveRun


@dataclass(frozen=True, kw_only=True)
class LearningRateFault(Fault):
    """The learning rate is multiplied by a factor.

    Simulated, the dose is ln(factor × scheduled over peak learning rate): late in the schedule a factor does less.
    """

    above = {"factor": 0.0}

    factor: float = 15.0
    """Multiple of the scheduled learning rate."""

    def dose(self, architecture: Architecture) -> float:
        """ln(factor) at the peak of the schedule; 0 for a rate that is not too high."""
        return max(0.0, log(self.factor))

    def simulate(self, state: RunProcesses, active: BoolsRT, rng: RunStreams) -> None:
        scheduled_R = state.learning_rate_rel[np.arange(state.runs), np.argmax(active, axis=1)]
        effect = effect_of(self, state, np.maximum(0.0, np.log(self.factor * scheduled_R)))
        respond(state, active, rng, self._adapted(effect))
        state.learning_rate_factor[active] *= self.factor

    def _adapted(self, effect: dict[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
        """The fitted effect as it is here."""
        return effect

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        # Several multiply each other and may end in any order, as the parts of a combined fault do.
        training.learning_rate_factor *= self.factor
        try:
            yield
        finally:
            training.learning_rate_factor /= self.factor


@register_fault("LR_SPIKE")
@dataclass(frozen=True, kw_only=True)
class LrSpike(LearningRateFault):
    """The scheduler returns a multiple of the learning rate for some steps (a wrong restart, a unit error).

    Within some steps the loss jumps by a share that grows with the factor; what the long steps tore down heals over
    tens to hundreds of steps, or not at all. Under AdamW real runs do not run away to infinity.
    """

    source = "factors and duration: Fatima 2025 (authors' files); stability limit: Cohen et al. 2021, arXiv 2103.00065"
    severities = {"low": {"factor": 5.0}, "medium": {}, "high": {"factor": 25.0}}

    duration_steps: int = 20


@register_fault("LARGE_LR")
@dataclass(frozen=True, kw_only=True)
class LargeLr(LearningRateFault):
    """The learning rate is a multiple of what it should be until the run ends.

    Simulated, it responds as a spike of the same factor does (:class:`LrSpike`), and what is lost stays lost as long as
    the fault lasts: an assumption, for no run that the simulator is fitted to has this fault.
    """

    source = "Huang et al. 2026, arXiv 2606.28116 (large learning rate)"
    severities = {"low": {"factor": 3.0}, "medium": {}, "high": {"factor": 12.0}}
    responds_as = "LR_SPIKE"

    factor: float = 6.0

    def _adapted(self, effect: dict[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
        return {**effect, "floor": np.maximum(effect["floor"], effect["jump"]), "kick": 0.0 * effect["kick"]}
