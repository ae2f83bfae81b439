"""A worker that ails and then dies."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rmetric.components import FAULTY_GPU, GPU_MEMORY
from rmetric.faults.base import NEVER, Fault, register_fault
from rmetric.faults.processes import BoolsRT, RunProcesses
from rmetric.streams import RunStreams

if TYPE_CHECKING:
    from rmetric.live.run import Batch, LiveRun


@register_fault("NODE_FAILURE")
@dataclass(frozen=True, kw_only=True)
class NodeFailure(Fault):
    """One worker's memory shows correctable errors, slows the step now and then, and is lost for good after a while.

    At low severity a spare takes its place: the job stalls once and goes on. Loss and gradients never show anything.

    Live: a worker that is a process of its own is killed in earnest. In a single process the worker's share of every
    batch is lost from then on, which makes the batch smaller, and the failure is reported. A spare lets all wait.
    """

    source = "components: Llama 3 405B interruptions (arXiv 2407.21783, Table 5); precursors: an assumption"
    severities = {
        "low": {"spare": True, "incubation_steps": 150.0},
        "medium": {},
        "high": {"incubation_steps": 60.0, "events_per_step": 0.1},
    }
    at_least = dict.fromkeys(
        ("incubation_steps", "events_per_step", "slow_step_probability", "slow_step_s", "restart_stall_s",
         "live_time_scale"), 0.0,
    )  # fmt: skip
    at_most = {"events_per_step": 1.0, "slow_step_probability": 1.0}

    incubation_steps: float = 300.0
    """Mean steps between the first symptom and the loss of the worker (gamma distributed, shape 2)."""
    events_per_step: float = 0.05
    """Probability of a correctable event in a step."""
    slow_step_probability: float = 0.05
    """Probability that the ailing worker holds up a step."""
    slow_step_s: float = 4.0
    """Mean seconds by which it does."""
    spare: bool = False
    """Whether a spare worker takes over after a stall."""
    restart_stall_s: float = 240.0
    """Seconds until the spare has taken over."""
    live_time_scale: float = 0.02
    """Share of these seconds that a live run waits: a tiny model's step is that much shorter than a production one."""

    def simulate(self, state: RunProcesses, active: BoolsRT, rng: RunStreams) -> None:
        onset = np.argmax(active, axis=1)
        waits = rng.exponential("incubation", size=(2,)).sum(axis=1) * self.incubation_steps / 2
        dies_at = onset + 2 + np.floor(waits).astype(np.int64)
        worker = state.one_worker(rng)
        columns = np.arange(state.steps)
        ailing = active & (columns < dies_at[:, None])
        state.report_events(ailing & (rng.random("events") < self.events_per_step), GPU_MEMORY, worker, "correctable")
        slow = ailing & (rng.random("slow") < self.slow_step_probability)
        state.stall_s += slow * rng.exponential("slow seconds") * self.slow_step_s
        dies = active & (columns == dies_at[:, None])
        state.report_events(dies, FAULTY_GPU, worker, "fatal")
        if self.spare:
            state.stall_s += dies * self.restart_stall_s
        else:
            happens = dies.any(axis=1)
            state.lose_worker(np.where(happens, dies_at + 1, NEVER), worker)

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        from rmetric.live.injection.workers import worker_count

        draw = training.rng(f"{self.name}/death")
        dies_at = training.step + 3 + int(draw.exponential(self.incubation_steps / 2, size=2).sum())
        worker = int(draw.integers(worker_count(training)))

        def ail(batch: Batch) -> Batch:
            if training.step < dies_at:
                self._show_symptoms(training, worker)
            elif training.step == dies_at:
                self._die(training, worker)
            return batch

        return training.at("batch", ail)

    def _show_symptoms(self, training: LiveRun, worker: int) -> None:
        draw = training.rng(f"{self.name}/symptoms")
        if draw.random() < self.events_per_step:
            training.observer.hardware_event(GPU_MEMORY, kind="correctable", worker=worker)
        if draw.random() < self.slow_step_probability:
            self._wait(draw.exponential(self.slow_step_s))

    def _die(self, training: LiveRun, worker: int) -> None:
        """Lose the worker for good, unless there is a spare: then the job stands still until it has taken over."""
        from rmetric.live.injection.workers import take_away

        if self.spare:
            training.observer.hardware_event(FAULTY_GPU, kind="fatal", worker=worker)
            self._wait(self.restart_stall_s)
        else:
            take_away(training, worker, FAULTY_GPU)

    def _wait(self, seconds: float) -> None:
        time.sleep(seconds * self.live_time_scale)
