"""Collectives that take longer than they should, and sometimes time out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmetric.faults.base import NEVER, BoolsRT, Fault, Processes, register_fault
from rmetric.streams import RunStreams


@register_fault("NETWORK_DEGRADATION")
@dataclass(frozen=True, kw_only=True)
class NetworkDegradation(Fault):
    """Every collective is delayed; the link reports retransmissions; a time-out of the watchdog takes a worker away.

    Loss and gradients are untouched: synchronous training waits.
    """

    source = "delays 50 / 150 / 250 ms: Fatima 2025; watchdog time-outs: arXiv 2407.21783, Table 5"
    severities = {  # noqa: RUF012
        "low": {"delay_ms": 50.0, "timeout_probability": 0.0, "events_per_step": 0.01},
        "medium": {"delay_ms": 150.0, "timeout_probability": 0.0004, "events_per_step": 0.03},
        "high": {"delay_ms": 250.0, "timeout_probability": 0.004, "events_per_step": 0.08},
    }

    delay_ms: float = 150.0
    """Mean delay of a collective, milliseconds."""
    collectives_per_step: int = 8
    """Collectives that a step waits for one after the other (gradient buckets)."""
    timeout_probability: float = 0.0004
    """Probability that a step runs into the watchdog's time-out."""
    events_per_step: float = 0.03
    """Probability of a correctable network event in a step."""

    def simulate(self, state: Processes, active: BoolsRT, rng: RunStreams) -> None:
        jitter = 0.5 + 0.5 * rng.exponential("jitter")
        state.stall_s += active * jitter * self.collectives_per_step * self.delay_ms / 1000.0
        worker = np.floor(rng.random("worker", size=()) * state.architecture.workers).astype(np.int64)
        state.report_events(
            active & (rng.random("events") < self.events_per_step), "Network switch / cable", worker, "correctable"
        )
        times_out = active & (rng.random("time-out") < self.timeout_probability)
        step = np.where(times_out.any(axis=1), np.argmax(times_out, axis=1) + 1, NEVER)
        state.report_events(np.arange(1, state.steps + 1) == step[:, None], "NCCL watchdog timeouts", worker, "fatal")
        state.lose_worker(step, worker)
