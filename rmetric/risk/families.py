"""Fault families: faults that call for the same first response and that the signals of a log can hardly tell apart."""

from __future__ import annotations

from rmetric.records import Run

BENIGN, UNKNOWN = "benign", "unknown"
"""``benign``: nothing is broken; ``unknown``: the signals fit no family well enough. The second is an answer only."""

FAMILIES: dict[str, tuple[str, ...]] = {
    # The step is too long; everything else is in order: go back and lower the rate.
    "learning rate": ("LR_SPIKE", "LARGE_LR"),
    # The gradients are too long, at a learning rate that is as planned: skip steps, clip, look at the loss scaling.
    "gradients": ("GRADIENT_EXPLOSION",),
    # The text is at fault, not the machine: skip the batches and look at the loader.
    "data": ("DATA_CORRUPTION",),
    # Arithmetic that is wrong now and then: find and drain the device.
    "silent corruption": ("SILENT_DATA_CORRUPTION",),
    # The model computes another function than the one it was trained as: a wrong checkpoint, kernel or setting.
    "attention or norm": ("GQA_MISMATCH", "RMS_NORM_ERROR", "LOW_PRECISION_ATTENTION"),
    # The same in the parts that only a mixture of experts has.
    "experts": ("EXPERT_FAILURE", "ROUTER_IMBALANCE"),
    # Loss and gradients are healthy until a worker is gone: checkpoint and replace it.
    "node": ("NODE_FAILURE",),
    # Every step waits for the slowest link: look at the network.
    "network": ("NETWORK_DEGRADATION",),
    # A changed data mix, a learning-rate restart, one bad batch, a stray correctable event, or nothing at all.
    BENIGN: (),
}
"""Family → its faults, in the order of tables and figures."""

_FAMILY_OF = {fault: family for family, faults in FAMILIES.items() for fault in faults}


def family_of(fault: str) -> str:
    """Family of a fault by its registered name; ``unknown`` for one that has none (a plug-in's, a combination's).

    >>> family_of("LARGE_LR"), family_of("NONE"), family_of("LR_SPIKE+NODE_FAILURE")
    ('learning rate', 'benign', 'unknown')
    """
    return BENIGN if fault == "NONE" else _FAMILY_OF.get(fault, UNKNOWN)


def disturbance_step(run: Run) -> int | None:
    """Step at which a control run was disturbed on purpose; ``None`` if it was not."""
    disturbance = run.config.get("disturbance")
    step = disturbance.get("step") if isinstance(disturbance, dict) else None
    return int(step) if isinstance(step, int | float) else None
