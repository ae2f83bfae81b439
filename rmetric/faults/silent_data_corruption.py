"""Bits that flip without anybody being told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmetric.faults.base import BoolsRT, Fault, Processes, register_fault
from rmetric.streams import RunStreams


@register_fault("SILENT_DATA_CORRUPTION")
@dataclass(frozen=True, kw_only=True)
class SilentDataCorruption(Fault):
    """One worker's arithmetic flips bits now and then.

    A low bit of the mantissa changes nothing that can be seen. A low bit of the exponent makes one worker's gradient
    stand out for a step and throws the parameters off by an amount that varies over orders of magnitude. The top bit of
    the exponent makes weights non-finite, or ruins a head.
    """

    source = "Altenbernd, Wiesner, Kao 2026, arXiv 2604.00726; real sample runs with flipped bits"
    severities = {  # noqa: RUF012
        "low": {"kick_nats": 0.002, "gradient_factor": 1.2},
        "medium": {"kick_nats": 0.03, "gradient_factor": 30.0},
        "high": {"kick_nats": 0.12, "gradient_factor": 1000.0, "non_finite_probability": 0.02},
    }

    flips_per_step: float = 0.08
    """Probability of a flip in a step."""
    kick_nats: float = 0.03
    """Median excess loss of a flip at peak learning rate, nats."""
    kick_spread: float = 1.2
    """Standard deviation of the logarithm of the kick."""
    gradient_factor: float = 30.0
    """Factor on the worker's gradient in the step of a flip."""
    non_finite_probability: float = 0.0
    """Probability that a flip makes weights non-finite."""

    def simulate(self, state: Processes, active: BoolsRT, rng: RunStreams) -> None:
        # The first active step always flips a bit: that is the onset.
        first = active & (np.cumsum(active, axis=1) == 1)
        flips = first | (active & (rng.random("flips") < self.flips_per_step))
        worker = np.floor(rng.random("worker", size=()) * state.architecture.workers).astype(np.int64)
        hit = flips[:, :, None] & (np.arange(state.architecture.workers) == worker[:, None, None])
        state.worker_gradient_factor[hit] *= self.gradient_factor
        state.kick += flips * self.kick_nats * np.exp(self.kick_spread * rng.normal("kick")) * state.learning_rate_rel
        state.non_finite_weights |= flips & (rng.random("non-finite") < self.non_finite_probability)
