"""Experts that answer with zeros."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmetric.faults.base import BoolsRT, Fault, Processes, register_fault
from rmetric.streams import RunStreams


@register_fault("EXPERT_FAILURE")
@dataclass(frozen=True, kw_only=True)
class ExpertFailure(Fault):
    """Some experts return zeros until the run ends.

    Tokens routed to them lose that part of the computation at once; the router learns to avoid them, which wins back
    some of the loss and leaves fewer parameters for good.
    """

    source = "fault: Fatima 2025; routing: Jiang et al. 2024, arXiv 2401.04088; effect: an assumption"
    severities = {"low": {"experts": 1}, "medium": {"experts": 2}, "high": {"experts": 4}}  # noqa: RUF012
    needs_experts = True

    experts: int = 2
    """Experts that fail (of those in every layer)."""
    kick_nats: float = 0.03
    """Excess loss at the onset if all experts failed, nats."""
    floor_per_share: float = 0.28
    """Lasting relative excess of the loss per share of failed experts (median over runs)."""
    time_constant_steps: float = 60.0
    """Steps in which the loss covers 63 % of the way."""

    def simulate(self, state: Processes, active: BoolsRT, rng: RunStreams) -> None:
        share = self.experts / max(state.architecture.experts, 1)
        first = active & (np.cumsum(active, axis=1) == 1)
        state.kick += first * self.kick_nats * share * (0.5 + rng.exponential("kick"))
        floor = self.floor_per_share * share * rng.log_normal("strength", 0.3)
        state.raise_floor(active, floor, self.time_constant_steps * rng.log_normal("slowness", 0.4))
        state.gradient_noise_factor[active] *= 1.0 + share
        state.reported["failed_experts"][active] = self.experts
