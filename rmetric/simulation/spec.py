"""Specification of one simulated run; nothing else has an influence on it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rmetric.architectures import ARCHITECTURES, Architecture
from rmetric.errors import UserError
from rmetric.faults import NO_FAULT, Fault, check_fault_fits, file_name_part, make_fault
from rmetric.simulation.conditions import FITTED, Conditions

SIMULATION_VERSION = 1
"""Raise it when the same run is simulated or logged otherwise: studies that were begun before are then not resumed
(:mod:`rmetric.versions`)."""
MAX_STEPS = 1_000_000
"""Longest run that can be simulated: a batch of 60 holds some 100 numbers a step and run in memory."""


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One simulated run."""

    architecture: str
    fault: str = NO_FAULT
    """A fault, a combination ``A+B``, or ``NONE``."""
    severity: str = "medium"
    seed: int = 0
    """Seed of all the run's noise; a run and its twin have the same."""
    onset: int | None = None
    """Step of the onset, from 1; ``None``: uniform over the middle half of the run, drawn from the seed."""
    steps: int = 5000
    log_every: int = 10
    eval_every: int = 100
    repetition: int = 1
    """Number of the run among its like, from 1."""
    number: int = 0
    """Number of the run in its study."""
    name: str = ""
    """Name of the run where it is not part of a study; see :attr:`experiment_id`."""
    conditions: Conditions = FITTED
    """Which of the author's conditions hold instead of those fitted to real training."""

    def __post_init__(self) -> None:
        if self.steps < 1 or self.log_every < 1 or self.eval_every < 1:
            raise UserError("steps, log-every and eval-every must be at least 1")
        if self.steps > MAX_STEPS:
            raise UserError(f"a simulated run has at most {MAX_STEPS:,} steps, not {self.steps}")
        if not 0 <= self.seed < 2**64:
            raise UserError(f"the seed must be a whole number from 0 to 2^64 - 1, not {self.seed}")
        if self.log_every > self.steps:
            raise UserError(
                f"a record every {self.log_every} steps leaves a run of {self.steps} without any; lower --log-every"
            )
        if self.onset is not None and not 1 <= self.onset <= self.steps:
            raise UserError(f"the fault step {self.onset} is not within the run's steps 1 to {self.steps}")
        check_fault_fits(self.fault, self.profile)

    @property
    def profile(self) -> Architecture:
        """The architecture's profile."""
        return ARCHITECTURES[self.architecture]

    @property
    def is_control(self) -> bool:
        """True if no fault is injected."""
        return self.fault == NO_FAULT

    @property
    def experiment_id(self) -> str:
        """Name of the run, and of its log without the ending."""
        if self.name:
            return self.name
        severity = "" if self.is_control else f"_{self.severity}"
        return f"run_{self.number:03d}_{self.architecture}_{file_name_part(self.fault)}{severity}_rep{self.repetition}"

    def make_fault(self) -> Fault | None:
        """The fault with its parameters; ``None`` for a control run."""
        return None if self.is_control else self.conditions.fault(make_fault(self.fault, self.severity))

    def twin(self) -> RunSpec:
        """The fault-free run with the same seed."""
        return replace(self, fault=NO_FAULT, onset=None)
