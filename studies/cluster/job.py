"""A training job on a cluster whose components fail: rates by class of components, checkpoint interval, durations.

A class holds the components that one injected fault of a study stands for.

**Source:** :data:`rmetric.simulation.hardware.INTERRUPTIONS`, 419 in 54 days on 16,384 GPUs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rmetric.components import FAULTY_GPU, GPU_MEMORY, LINK, NIC, SILENT_CORRUPTION, WATCHDOG
from rmetric.simulation.hardware import INTERRUPTIONS, RESTART_STALL_S, hazard_per_gpu_hour
from studies.cluster.cost import CostModel

CORRUPTION = "SILENT_DATA_CORRUPTION"
UNSEEN = "no fault of the study"
"""Class of the components that no fault stands for: nothing can be measured about their warnings, so there are none."""

STANDS_FOR: dict[str, tuple[str, ...]] = {
    "NODE_FAILURE": (FAULTY_GPU, GPU_MEMORY),
    "NETWORK_DEGRADATION": (LINK, NIC, WATCHDOG),
    CORRUPTION: (SILENT_CORRUPTION,),
}
"""Fault → components: those that the fault's own events name, and the network cards beside cables and switches."""

_STOOD_FOR = [component for components in STANDS_FOR.values() for component in components]
CLASSES: dict[str, tuple[str, ...]] = {
    **STANDS_FOR,
    UNSEEN: tuple(component for component in INTERRUPTIONS if component not in _STOOD_FOR),
}
"""Every component of the source, in exactly one class."""


def rate_per_gpu_hour(kind: str) -> float:
    """Interruptions of a class per GPU-hour.

    >>> round(rate_per_gpu_hour("SILENT_DATA_CORRUPTION") * 54 * 24 * 16_384, 9)
    6.0
    """
    return sum(hazard_per_gpu_hour(component) for component in CLASSES[kind])


def counted(kind: str) -> int:
    """Interruptions of a class in the source.

    >>> {kind: counted(kind) for kind in CLASSES if kind != UNSEEN}, sum(map(counted, CLASSES))
    ({'NODE_FAILURE': 220, 'NETWORK_DEGRADATION': 49, 'SILENT_DATA_CORRUPTION': 6}, 419)
    """
    return sum(INTERRUPTIONS[component] for component in CLASSES[kind])


def young(write: float, mtbf: float) -> float:
    """Work between two checkpoints, first order: √(2 · write · mtbf).

    **Source:** Young 1974, A first order approximation to the optimum checkpoint interval.

    >>> young(5.0, 24 * 60.0)  # minutes
    120.0
    """
    return math.sqrt(2.0 * write * mtbf)


def daly(write: float, mtbf: float) -> float:
    """Work between two checkpoints, higher order.

    .. math:: \\sqrt{2 c M} \\left(1 + \\tfrac13 \\sqrt{c / 2M} + \\tfrac19 (c / 2M)\\right) - c

    for c < 2 M, otherwise M.

    Parameters
    ----------
    write
        c, time that writing a checkpoint stops the training for.
    mtbf
        M, mean time between interruptions.

    **Source:** Daly 2006, A higher order estimate of the optimum checkpoint interval for restart dumps; its Figures 3,
    4 and 5 have 117, 57 and 9.1 minutes:

    >>> [round(daly(5.0, mtbf), 1) for mtbf in (24 * 60.0, 6 * 60.0, 15.0)]
    [116.7, 56.7, 9.1]
    """
    if write >= 2.0 * mtbf:
        return mtbf
    if math.isinf(mtbf):
        return math.inf
    ratio = write / (2.0 * mtbf)
    return young(write, mtbf) * (1.0 + math.sqrt(ratio) / 3.0 + ratio / 9.0) - write


@dataclass(frozen=True, kw_only=True)
class Job:
    """The work of a job and the cluster it runs on. Numbers without a source here are assumptions."""

    gpus: int
    useful_days: float = 54.0
    """Days that the job takes if nothing fails and nothing is written (the length of the source's run)."""
    step_time_s: float = CostModel.step_time_s
    """Seconds a step (the paper's 5)."""
    write_s: float = 10.0
    """Seconds that writing a checkpoint stops the training for: an assumption, three times what the storage allows.

    **Source:** arXiv 2407.21783, section 3.3: 405B parameters of 16 bytes each (weights and optimizer) are 6.5 TB; its
    storage takes 2 TB a second. The same at every size: a smaller cluster trains a smaller model on less storage.
    """
    restart_s: float = RESTART_STALL_S
    """Seconds from an interruption until the last checkpoint is loaded and training goes on: an assumption."""
    interval_s: float | None = None
    """Seconds of work between two checkpoints; ``None``: :func:`daly`."""
    vain_steps: tuple[float, float] = (3000.0, 4000.0)
    """Fewest and most steps that a silent corruption makes worthless when no monitor sees it (uniform).

    **Source:** Altenbernd, Wiesner, Kao 2026, arXiv 2604.00726, of one harmful event in models of up to 1.3B.
    """
    rate_factor: float = 1.0
    """Times the interruptions of the source."""
    usd_per_gpu_hour: float = CostModel.usd_per_accelerator_hour
    """The paper's 2.50."""

    @property
    def useful_h(self) -> float:
        """Hours of work to be done: T_optimal."""
        return 24.0 * self.useful_days

    @property
    def step_h(self) -> float:
        return self.step_time_s / 3600.0

    @property
    def write_h(self) -> float:
        return self.write_s / 3600.0

    @property
    def restart_h(self) -> float:
        return self.restart_s / 3600.0

    @property
    def rates_per_h(self) -> dict[str, float]:
        """Interruptions an hour of each class of components."""
        return {kind: self.rate_factor * self.gpus * rate_per_gpu_hour(kind) for kind in CLASSES}

    @property
    def mtbf_h(self) -> float:
        """Mean hours between interruptions.

        >>> round(Job(gpus=16_384).mtbf_h, 2)
        3.09
        """
        rate = sum(self.rates_per_h.values())
        return 1.0 / rate if rate > 0 else math.inf

    @property
    def interval_h(self) -> float:
        """Hours of work between two checkpoints, at most the whole job.

        >>> round(60 * Job(gpus=16_384).interval_h, 1)
        7.8
        """
        chosen = daly(self.write_h, self.mtbf_h) if self.interval_s is None else self.interval_s / 3600.0
        return min(chosen, self.useful_h)
