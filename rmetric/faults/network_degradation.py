"""Collectives that take longer than they should, and sometimes time out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rmetric.components import LINK, WATCHDOG
from rmetric.faults.base import NEVER, Fault, register_fault
from rmetric.faults.processes import BoolsRT, RunProcesses
from rmetric.streams import RunStreams

if TYPE_CHECKING:
    from rmetric.live.run import Batch, LiveRun


@register_fault("NETWORK_DEGRADATION")
@dataclass(frozen=True, kw_only=True)
class NetworkDegradation(Fault):
    """Every collective is delayed; the link reports retransmissions; a time-out of the watchdog takes a worker away.

    Loss and gradients are untouched: synchronous training waits.

    Live: the delays are real. Under ``DistributedDataParallel`` every bucket of gradients waits before it is sent, and
    there are as many collectives as there are buckets; otherwise the step waits for ``collectives_per_step`` of them.
    """

    source = "delays 50 / 150 / 250 ms: Fatima 2025; watchdog time-outs: arXiv 2407.21783, Table 5"
    severities = {
        "low": {"delay_ms": 50.0, "timeout_probability": 0.0, "events_per_step": 0.01},
        "medium": {},
        "high": {"delay_ms": 250.0, "timeout_probability": 0.004, "events_per_step": 0.08},
    }
    at_least = dict.fromkeys(
        ("delay_ms", "collectives_per_step", "timeout_probability", "events_per_step", "live_time_scale"), 0.0
    )
    at_most = {"timeout_probability": 1.0, "events_per_step": 1.0}

    delay_ms: float = 150.0
    """Mean delay of a collective, milliseconds."""
    collectives_per_step: int = 8
    """Collectives that a step waits for one after the other (gradient buckets)."""
    timeout_probability: float = 0.0004
    """Probability that a step runs into the watchdog's time-out."""
    events_per_step: float = 0.03
    """Probability of a correctable network event in a step."""
    live_time_scale: float = 1.0
    """Share of the delays that a live run waits, where a model's step is shorter than a production one."""

    def simulate(self, state: RunProcesses, active: BoolsRT, rng: RunStreams) -> None:
        jitter = 0.5 + 0.5 * rng.exponential("jitter")
        state.stall_s += active * jitter * self.collectives_per_step * self.delay_ms / 1000.0
        worker = state.one_worker(rng)
        state.report_events(active & (rng.random("events") < self.events_per_step), LINK, worker, "correctable")
        times_out = active & (rng.random("time-out") < self.timeout_probability)
        step = np.where(times_out.any(axis=1), np.argmax(times_out, axis=1) + 1, NEVER)
        state.report_events(np.arange(1, state.steps + 1) == step[:, None], WATCHDOG, worker, "fatal")
        state.lose_worker(step, worker)

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        from rmetric.live.injection.workers import worker_count
        from rmetric.monitor.dispersion.workers import communication_of

        worker = int(training.rng(f"{self.name}/worker").integers(worker_count(training)))
        network = communication_of(training.model)

        def degrade(batch: Batch) -> Batch:
            if network is not None:
                network.delay_s = self._delay_s(training)
            self._report(training, worker)
            return batch

        def wait() -> None:
            if network is None:
                time.sleep(self.collectives_per_step * self._delay_s(training))

        with training.at("batch", degrade), training.at("gradients", wait):
            try:
                yield
            finally:
                if network is not None:
                    network.delay_s = 0.0

    def _delay_s(self, training: LiveRun) -> float:
        """Delay of each collective of this step."""
        jitter = 0.5 + 0.5 * training.rng(f"{self.name}/jitter").exponential()
        return jitter * self.delay_ms * self.live_time_scale / 1000.0

    def _report(self, training: LiveRun, worker: int) -> None:
        """Report the events of link and watchdog in this step."""
        from rmetric.live.injection.workers import take_away

        event, time_out = training.rng(f"{self.name}/events").random(2)
        if event < self.events_per_step:
            training.observer.hardware_event(LINK, kind="correctable", worker=worker)
        if time_out < self.timeout_probability and training.worker_lost_step is None:
            take_away(training, worker, WATCHDOG)
