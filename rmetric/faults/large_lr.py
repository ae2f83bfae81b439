"""A learning rate that stays too high."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmetric.faults.base import BoolsRT, Fault, Processes, register_fault
from rmetric.faults.learning_rate import learning_rate_times, require_factor
from rmetric.streams import RunStreams

if TYPE_CHECKING:
    from rmetric.training.live_run import LiveRun


@register_fault("LARGE_LR")
@dataclass(frozen=True, kw_only=True)
class LargeLr(Fault):
    """The learning rate is a multiple of what it should be until the run ends.

    A factor just beyond the stability limit diverges slowly, over hundreds of steps, and only where the schedule is
    near its peak.
    """

    source = "Huang et al. 2026, arXiv 2606.28116 (large learning rate)"
    severities = {"low": {"factor": 3.0}, "medium": {"factor": 6.0}, "high": {"factor": 12.0}}  # noqa: RUF012

    factor: float = 6.0
    """Multiple of the scheduled learning rate."""

    def __post_init__(self) -> None:
        require_factor(self.name, self.factor)

    def simulate(self, state: Processes, active: BoolsRT, rng: RunStreams) -> None:
        state.learning_rate_factor[active] *= self.factor

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        return learning_rate_times(training, self.factor)
