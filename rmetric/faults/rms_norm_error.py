"""One layer normalises with the wrong scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmetric.faults.base import BoolsRT, Fault, Processes, register_fault
from rmetric.streams import RunStreams


@register_fault("RMS_NORM_ERROR")
@dataclass(frozen=True, kw_only=True)
class RmsNormError(Fault):
    """A layer's RMSNorm uses a wrong scale or ε, so activations and gradients drift up from step to step.

    An excess that is too small to be seen grows exponentially until it is not: hundreds of steps of incubation.
    """

    source = "fault: Fatima 2025; RMSNorm: Zhang, Sennrich 2019, arXiv 1910.07467; effect: an assumption"
    severities = {"low": {"growth_rate": 0.03}, "medium": {"growth_rate": 0.07}, "high": {"growth_rate": 0.15}}  # noqa: RUF012

    growth_rate: float = 0.07
    """Log-rate a step at which an excess loss grows (median over runs); training heals at about 0.06."""

    def simulate(self, state: Processes, active: BoolsRT, rng: RunStreams) -> None:
        strength = rng.log_normal("strength", 0.15)
        state.growth += active * strength * self.growth_rate
        state.worker_gradient_factor *= (1.0 + 2.0 * self.growth_rate * active).astype(np.float32)[:, :, None]
        state.reported["force_rms_norm_error"][active] = 1.0
