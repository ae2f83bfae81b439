"""Conditions under which a run is simulated: those fitted to real training, or those of the author's files."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from rmetric.faults import HARDWARE_FAULTS, Fault, RunProcesses
from rmetric.faults.processes import BoolsRT
from rmetric.simulation.dynamics import OVERFLOW_NATS
from rmetric.simulation.healthy import HealthyParameters
from rmetric.streams import RunStreams

CRASH_STEPS = (9, 20)
"""Fewest and most steps from the onset to the crash."""
CRASH_NATS = 50.0
"""Excess of the loss in the step of the onset: 51.4 where it was 1.5 in the author's log that ends there."""
WITHOUT_EFFECT = HARDWARE_FAULTS
"""Faults that make no run fail in the author's files."""
STEADY_RATE = 3e-4
"""Log-rate a step at which the loss falls in the author's three logs (3.1 at step 100, 0.73 at step 4,900)."""
_EXPONENTIAL = 100.0
"""Exponent at which the power law of the loss is an exponential to within 1 % over 5,000 steps."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Conditions of a run; each one is the author's where it is true, and fitted to real training where it is not.

    **Source:** M. Fatima 2025 and the files its author published, as far as they show it.
    """

    crash: bool = False
    """A fault makes the loss leap in its own step and overflow 9 to 20 steps later, which alone is the failure; two
    faults do nothing at all."""
    steady_loss: bool = False
    """The loss falls at one rate to the end, at a constant learning rate."""
    no_disturbances: bool = False
    """No healthy spike, no change of the data mix, no straggler."""
    exact_evaluation: bool = False
    """An evaluation measures the held-out loss itself, without the noise of a sample of text."""

    @property
    def names(self) -> list[str]:
        """Conditions that are the author's."""
        return [item.name for item in fields(self) if getattr(self, item.name)]

    def healthy(self, fitted: HealthyParameters) -> HealthyParameters:
        """Parameters of healthy training under these conditions."""
        changes: dict[str, Any] = {}
        if self.steady_loss:
            changes |= {"warm_up_share": 0.0, "final_learning_rate_rel": 1.0}
            changes |= {"loss_exponent": _EXPONENTIAL, "loss_scale_steps": _EXPONENTIAL / STEADY_RATE}
        if self.no_disturbances:
            changes |= {"benign_spikes_per_1000_steps": 0.0, "warm_up_spikes": 0.0}
            changes |= {"mix_shifts_per_1000_steps": 0.0, "straggler_probability": 0.0}
        if self.exact_evaluation:
            changes |= {"held_out_noise": 0.0}
        return replace(fitted, **changes)

    def fault(self, fault: Fault) -> Fault:
        """The fault as it works under these conditions."""
        return CrashingFault(of=fault) if self.crash else fault


FITTED = Conditions()
"""Everything as fitted to real training."""


@dataclass(frozen=True, kw_only=True)
class CrashingFault(Fault):
    """A fault that ends its run by itself within 20 steps, whatever it is and however severe; or that does nothing."""

    of: Fault
    """The fault whose name and parameters it has."""

    def simulate(self, state: RunProcesses, active: BoolsRT, rng: RunStreams) -> None:
        if self.of.name in WITHOUT_EFFECT:
            return
        low, high = CRASH_STEPS
        steps = low + np.floor(rng.random("crash", size=()) * (high - low + 1))
        onset = active & (np.cumsum(active, axis=1) == 1)
        state.kick += CRASH_NATS * onset
        # Half a step early: healing is slower than that, and the crash never comes a step late.
        rate = math.log(OVERFLOW_NATS / CRASH_NATS) / (steps + 0.5)
        state.growth += active * (rate[:, None] + state.healing_rate / (1.0 + CRASH_NATS))

    @property
    def label(self) -> str:
        return self.of.label

    @property
    def parameters(self) -> dict[str, Any]:
        return self.of.parameters
