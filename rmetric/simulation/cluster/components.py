"""Components that interrupt a job, put together by the fault that a study injects for them.

**Source:** :data:`rmetric.simulation.hardware.INTERRUPTIONS`, 419 in 54 days on 16,384 GPUs.
"""

from __future__ import annotations

from rmetric.simulation.hardware import INTERRUPTIONS, hazard_per_gpu_hour

CORRUPTION = "SILENT_DATA_CORRUPTION"
UNSEEN = "no fault of the study"
"""Class of the components that no fault stands for: nothing can be measured about their warnings, so there are none."""

STANDS_FOR: dict[str, tuple[str, ...]] = {
    "NODE_FAILURE": ("Faulty GPU", "GPU HBM3 memory"),
    "NETWORK_DEGRADATION": ("Network switch / cable", "NIC", "NCCL watchdog timeouts"),
    CORRUPTION: ("Silent data corruption",),
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
