"""What the tests of the faults share: processes before and after a fault, and faulty runs beside controls."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from rmetric.architectures import ARCHITECTURES
from rmetric.evaluation.ground_truth import Outcome
from rmetric.faults import FAULTS, NEVER, Fault, RunProcesses
from rmetric.faults.processes import Response
from rmetric.simulation import RunSpec, SimulationParameters, Traces, TrainingSimulator, judge_traces, simulator
from rmetric.simulation.healthy import healthy_processes
from rmetric.streams import RunStreams

MOE = "gpt-4-moe"
ALL = list(FAULTS)
NAMES = [name for name, fault in FAULTS.items() if fault.simulated]
"""Those that the simulator knows."""
BUGS = [name for name in ALL if name not in NAMES]


def undisturbed(runs: int = 5, steps: int = 800, architecture: str = MOE) -> RunProcesses:
    """Processes of healthy runs, of seeds 0, 1, …"""
    profile = ARCHITECTURES[architecture]
    streams = RunStreams(tuple(range(runs)), steps)
    known = SimulationParameters.shipped()
    healthy = healthy_processes(profile, streams, known.healthy)
    return simulator.undisturbed(profile, healthy, runs, steps, known.healthy, known.responses)


def between(runs: int, steps: int, onset: int | NDArray[np.int64], duration_steps: int = 0) -> NDArray[np.bool_]:
    """Where a fault with this onset (a step, from 1) is on, (runs, steps)."""
    step = np.arange(1, steps + 1)
    start = np.broadcast_to(onset, runs)[:, None]
    return (step >= start) & (step < (start + duration_steps if duration_steps else NEVER))


def disturbed(
    fault: Fault, runs: int = 5, steps: int = 800, onset: int | NDArray[np.int64] = 201, architecture: str = MOE
) -> RunProcesses:
    """The processes of :func:`undisturbed` after the fault."""
    processes = undisturbed(runs, steps, architecture)
    streams = RunStreams(tuple(range(runs)), steps).within(f"fault {fault.name}")
    fault.simulate(processes, between(runs, steps, onset, fault.duration_steps), streams)
    return processes


@dataclass(frozen=True)
class Pair:
    """Faulty runs and the controls of the same seeds."""

    faulty: Traces
    control: Traces
    outcomes: list[Outcome]

    @property
    def relative_excess(self) -> NDArray[np.float64]:
        """Excess of the held-out loss over the control's, relative, (R, T)."""
        return self.faulty.held_out / self.control.held_out - 1.0

    def median_excess(self, first: int, last: int) -> float:
        """Median over runs of the mean relative excess in some steps, from 1; NaN counts as infinite."""
        excess = np.where(np.isnan(self.relative_excess), np.inf, self.relative_excess)
        return float(np.median(excess[:, first - 1 : last].mean(axis=1)))

    @property
    def failed_share(self) -> float:
        """Share of the faulty runs that fail."""
        return sum(outcome.kind == "failed" for outcome in self.outcomes) / len(self.outcomes)


def response(fault: str, severity: str) -> Response:
    """The fitted response that the simulator comes with."""
    return SimulationParameters.shipped().responses[fault][severity]


@cache
def pair(
    fault: str, severity: str, *, runs: int = 8, steps: int = 1200, onset: int | None = 400, architecture: str = MOE
) -> Pair:
    """Simulate runs with a fault, and the same without."""
    specs = [
        RunSpec(architecture=architecture, fault=fault, severity=severity, seed=seed, steps=steps, onset=onset)
        for seed in range(runs)
    ]
    simulator = TrainingSimulator()
    faulty = simulator.simulate(specs)
    control = simulator.simulate([replace(spec, fault="NONE", onset=None) for spec in specs])
    return Pair(faulty, control, judge_traces(faulty))
