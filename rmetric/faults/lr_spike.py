"""A learning rate that is far too high for a while."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmetric.faults.base import BoolsRT, Fault, Processes, register_fault
from rmetric.faults.learning_rate import learning_rate_times, require_factor
from rmetric.streams import RunStreams

if TYPE_CHECKING:
    from rmetric.training.live_run import LiveRun


@register_fault("LR_SPIKE")
@dataclass(frozen=True, kw_only=True)
class LrSpike(Fault):
    """The scheduler returns a multiple of the learning rate for some steps (a wrong restart, a unit error).

    Beyond the stability limit 2/sharpness every step enlarges the error along the sharpest directions instead of
    shrinking it, so the loss runs away exponentially from noise; below it nothing is lost.
    """

    source = "factors and duration: Fatima 2025 (authors' files); stability limit: Cohen et al. 2021, arXiv 2103.00065"
    severities = {"low": {"factor": 5.0}, "medium": {"factor": 15.0}, "high": {"factor": 25.0}}  # noqa: RUF012

    factor: float = 15.0
    """Multiple of the scheduled learning rate."""
    duration_steps: int = 20

    def __post_init__(self) -> None:
        require_factor(self.name, self.factor)

    def simulate(self, state: Processes, active: BoolsRT, rng: RunStreams) -> None:
        state.learning_rate_factor[active] *= self.factor

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        return learning_rate_times(training, self.factor)
