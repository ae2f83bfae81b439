"""Key/value heads that serve the wrong group of query heads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmetric.faults.base import BoolsRT, Fault, Processes, register_fault
from rmetric.streams import RunStreams


@register_fault("GQA_MISMATCH")
@dataclass(frozen=True, kw_only=True)
class GqaMismatch(Fault):
    """In a share of the layers, key/value heads are paired with the wrong query groups (a resharding error).

    The layers lose what they had learned within tens of steps, then learn a new pairing; some capacity stays lost.
    """

    source = "fault: Fatima 2025; grouped queries: Ainslie et al. 2023, arXiv 2305.13245; effect: an assumption"
    severities = {"low": {"layer_share": 0.03}, "medium": {"layer_share": 0.09}, "high": {"layer_share": 0.35}}  # noqa: RUF012

    layer_share: float = 0.09
    """Share of the layers concerned, in [0, 1]."""
    floor_per_share: float = 0.9
    """Final relative excess of the loss per share of layers (median over runs)."""
    time_constant_steps: float = 120.0
    """Steps in which the loss covers 63 % of the way."""

    def simulate(self, state: Processes, active: BoolsRT, rng: RunStreams) -> None:
        floor = self.layer_share * self.floor_per_share * rng.log_normal("strength", 0.3)
        state.raise_floor(active, floor, self.time_constant_steps * rng.log_normal("slowness", 0.4))
        state.gradient_noise_factor[active] *= 1.0 + self.layer_share
        state.worker_gradient_factor *= (1.0 + 0.5 * self.layer_share * active).astype(np.float32)[:, :, None]
        state.reported["force_gqa_mismatch"][active] = 1.0
