"""Attention whose rounding errors all point the same way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmetric.faults.base import BoolsRT, Fault, Processes, register_fault
from rmetric.streams import RunStreams


@register_fault("LOW_PRECISION_ATTENTION")
@dataclass(frozen=True, kw_only=True)
class LowPrecisionAttention(Fault):
    """Biased BF16 rounding of the P·V accumulation adds the same low-rank error to the weights at every step.

    The spectral norm of the weights grows, and with it the rate at which errors are amplified: loss and gradients stay
    normal for a long time and then leave suddenly.
    """

    source = "Qiu, Yao 2025, arXiv 2510.04212; Huang et al. 2026, arXiv 2606.28116"
    severities = {  # noqa: RUF012
        "low": {"ramp_steps": 3000.0},
        "medium": {"ramp_steps": 800.0},
        "high": {"ramp_steps": 250.0},
    }

    ramp_steps: float = 800.0
    """Steps in which the accumulated bias doubles the rate at which training heals."""
    growth_rate: float = 0.06
    """Log-rate a step that is reached after ``ramp_steps``; it goes on rising."""

    def simulate(self, state: Processes, active: BoolsRT, rng: RunStreams) -> None:
        accumulated = np.cumsum(active * state.learning_rate_rel, axis=1) / self.ramp_steps
        state.growth += active * self.growth_rate * accumulated
        state.gradient_noise_factor *= 1.0 + 0.2 * np.minimum(accumulated, 2.0) * active
