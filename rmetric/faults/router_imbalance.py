"""A router that sends most tokens to a few experts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmetric.faults.base import BoolsRT, Fault, Processes, register_fault
from rmetric.streams import RunStreams


@register_fault("ROUTER_IMBALANCE")
@dataclass(frozen=True, kw_only=True)
class RouterImbalance(Fault):
    """Router logits are biased; the favoured experts learn more, so the imbalance feeds itself.

    The busiest expert becomes the straggler of every step, the idle ones stop learning, and the loss rises slowly.
    """

    source = "factors 0.7 to 0.8: Fatima 2025; collapse of routing: Huang et al. 2026, arXiv 2606.28116"
    severities = {  # noqa: RUF012
        "low": {"imbalance_factor": 0.7, "time_constant_steps": 4000.0},
        "medium": {"imbalance_factor": 0.75, "time_constant_steps": 900.0},
        "high": {"imbalance_factor": 0.8, "time_constant_steps": 300.0},
    }
    needs_experts = True

    imbalance_factor: float = 0.75
    """Final share of the tokens that go to the favoured experts, in [0, 1]."""
    time_constant_steps: float = 900.0
    """Steps in which routing covers 63 % of the way to collapse."""
    floor_per_factor: float = 0.14
    """Final relative excess of the loss at a factor of 1."""

    def simulate(self, state: Processes, active: BoolsRT, rng: RunStreams) -> None:
        slowness = rng.log_normal("slowness", 0.4)
        collapse = -np.expm1(np.cumsum(active, axis=1) / -(self.time_constant_steps * slowness))
        state.floor += active * self.floor_per_factor * self.imbalance_factor * collapse
        state.floor_rate[active] = 0.02
        state.stall_s += active * 1.5 * self.imbalance_factor * collapse
        state.gradient_noise_factor *= 1.0 + self.imbalance_factor * collapse * active
        state.reported["router_imbalance_factor"][active] = self.imbalance_factor
