"""Gradients that grow until clipping cannot hold them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmetric.faults.base import BoolsRT, Fault, Processes, register_fault
from rmetric.streams import RunStreams


@register_fault("GRADIENT_EXPLOSION")
@dataclass(frozen=True, kw_only=True)
class GradientExplosion(Fault):
    """Gradients are multiplied by a factor that ramps up to ``scale``.

    Clipping keeps the size of the update, but the direction is that of the exploding layer alone: each step throws the
    parameters off by a little, in proportion to the logarithm of the factor, and training has to heal it.
    """

    source = "Pascanu et al. 2013, arXiv 1211.5063; harmless under clipping, fatal without, in the real sample runs"
    severities = {  # noqa: RUF012
        "low": {"scale": 10.0, "kick_nats": 0.002, "duration_steps": 100},
        "medium": {"scale": 100.0, "kick_nats": 0.03},
        "high": {"scale": 1000.0, "kick_nats": 0.08, "ramp_steps": 10},
    }

    scale: float = 100.0
    """Final factor on every worker's gradient."""
    ramp_steps: int = 40
    """Steps until the factor is reached (geometric ramp)."""
    kick_nats: float = 0.03
    """Excess loss a step at the final factor and peak learning rate, nats (median over runs)."""

    def simulate(self, state: Processes, active: BoolsRT, rng: RunStreams) -> None:
        progress = np.minimum(np.cumsum(active, axis=1) / self.ramp_steps, 1.0) * active
        state.worker_gradient_factor *= (self.scale**progress).astype(np.float32)[:, :, None]
        strength = rng.log_normal("strength", 0.4)
        state.kick += strength * self.kick_nats * progress * state.learning_rate_rel
