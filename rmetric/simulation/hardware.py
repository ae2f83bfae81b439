"""Hardware events of a healthy cluster: rare fatal ones, and correctable ones that come before them far more often.

**Source:** unexpected interruptions of Llama 3 405B pre-training (Grattafiori et al. 2024, arXiv 2407.21783, Table 5):
419 in 54 days on 16,384 GPUs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rmetric.faults import HardwareEvent
from rmetric.streams import RunStreams

GPU_HOURS = 54 * 24 * 16_384

INTERRUPTIONS = {
    "Faulty GPU": 148,
    "GPU HBM3 memory": 72,
    "Software bug": 54,
    "Network switch / cable": 35,
    "Host maintenance": 32,
    "GPU SRAM memory": 19,
    "GPU system processor": 17,
    "NIC": 7,
    "NCCL watchdog timeouts": 7,
    "Silent data corruption": 6,
    "GPU thermal interface + sensor": 6,
    "SSD": 3,
    "Power supply": 3,
    "Server chassis": 2,
    "IO expansion board": 2,
    "Dependency": 2,
    "CPU": 2,
    "System memory": 2,
}
"""Component → unexpected interruptions in those 54 days."""

CORRECTABLE = (
    "GPU HBM3 memory",
    "GPU SRAM memory",
    "Network switch / cable",
    "NIC",
    "GPU thermal interface + sensor",
    "SSD",
    "System memory",
)
"""Components that report errors which were corrected: ECC, retransmission, throttling, remapping."""

CORRECTABLE_PER_FATAL = 14_000
"""Correctable events per fatal one of the same component: an assumption (0.1 events per GPU-hour in all)."""

RESTART_STALL_S = 600.0
"""Seconds until a healthy cluster has replaced a worker after a fatal event: an assumption."""


def hazard_per_gpu_hour(component: str) -> float:
    """Fatal events of a component per GPU-hour.

    >>> round(1 / sum(hazard_per_gpu_hour(component) for component in INTERRUPTIONS), -2)
    50700.0
    """
    return INTERRUPTIONS[component] / GPU_HOURS


def healthy_events(streams: RunStreams, workers: int, step_time_s: float) -> list[list[HardwareEvent]]:
    """Events of each run of a healthy cluster, in the order of their steps.

    Numbers are Poisson with the component's hazard times the GPU-hours of the run; times are uniform.
    """
    gpu_hours = streams.steps * step_time_s / 3600.0 * workers
    kinds = [(component, "fatal", 1.0) for component in INTERRUPTIONS]
    kinds += [(component, "correctable", float(CORRECTABLE_PER_FATAL)) for component in CORRECTABLE]
    means = np.array([hazard_per_gpu_hour(component) * factor * gpu_hours for component, _, factor in kinds])
    runs = []
    for generator in streams.generators("hardware"):
        counts = generator.poisson(means)
        steps = generator.integers(1, streams.steps + 1, size=counts.sum())
        hit = generator.integers(0, workers, size=counts.sum())
        which = np.repeat(np.arange(len(kinds)), counts)
        events = [
            HardwareEvent(int(step), kinds[kind][0], int(worker), kinds[kind][1])
            for step, worker, kind in zip(steps, hit, which, strict=True)
        ]
        runs.append(sorted(events, key=lambda event: event.step))
    return runs


def restart_stalls_s(events: list[list[HardwareEvent]], steps: int) -> NDArray[np.float64]:
    """Seconds that each step waits because a worker is being replaced after a fatal event, shape (runs, steps)."""
    stalls = np.zeros((len(events), steps))
    for row, run in enumerate(events):
        for event in run:
            if event.kind == "fatal":
                stalls[row, event.step - 1] += RESTART_STALL_S
    return stalls
