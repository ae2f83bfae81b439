"""Hardware events of a healthy cluster: rare fatal ones, and correctable ones that come before them far more often.

**Source:** unexpected interruptions of Llama 3 405B pre-training (Grattafiori et al. 2024, arXiv 2407.21783, Table 5):
419 in 54 days on 16,384 GPUs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rmetric.components import (
    BUS,
    CPU,
    FAULTY_GPU,
    GPU_MEMORY,
    GPU_PROCESSOR,
    GPU_SRAM,
    GPU_THERMAL,
    LINK,
    NIC,
    POWER,
    SILENT_CORRUPTION,
    SSD,
    SYSTEM_MEMORY,
    WATCHDOG,
)
from rmetric.faults import HardwareEvent
from rmetric.streams import RunStreams

GPU_HOURS = 54 * 24 * 16_384

INTERRUPTIONS = {
    FAULTY_GPU: 148,
    GPU_MEMORY: 72,
    "Software bug": 54,
    LINK: 35,
    "Host maintenance": 32,
    GPU_SRAM: 19,
    GPU_PROCESSOR: 17,
    NIC: 7,
    WATCHDOG: 7,
    SILENT_CORRUPTION: 6,
    GPU_THERMAL: 6,
    SSD: 3,
    POWER: 3,
    "Server chassis": 2,
    BUS: 2,
    "Dependency": 2,
    CPU: 2,
    SYSTEM_MEMORY: 2,
}
"""Component → unexpected interruptions in those 54 days."""

CORRECTABLE = (GPU_MEMORY, GPU_SRAM, LINK, NIC, GPU_THERMAL, SSD, SYSTEM_MEMORY)
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
            HardwareEvent(step, kinds[kind][0], worker, kinds[kind][1])
            for step, worker, kind in zip(steps.tolist(), hit.tolist(), which.tolist(), strict=True)
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
