"""Plan: two tiny models, the mitigations, and the faults that each is brought upon."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rmetric.detectors import DEFAULT_DETECTORS, ROBUST
from rmetric.monitor.repair import (
    ClipGradients,
    LowerLearningRate,
    Policy,
    QkNormalisation,
    ResetRouterBias,
    SkipUpdate,
    SmoothSingularValues,
)
from rmetric.monitor.repair.policy import InterventionRule
from studies.real_runs.plan import RealStudyPlan

HEALTHY = "healthy"
"""Name of the run that nothing befalls."""
NOTHING = "nothing"
"""Name of the run that nobody watches."""
MONITOR = "monitor"
"""Name of the run that a monitor without a policy watches."""


@dataclass(frozen=True)
class Mitigation:
    """A policy, and the faults that it is meant for."""

    make: Callable[[], Policy]
    meant_for: tuple[str, ...]
    models: tuple[str, ...] = ("tiny-llama", "tiny-moe")


def _on_alert() -> InterventionRule:
    return InterventionRule(on=(ROBUST,))


LR_SPIKE, LARGE_LR, EXPLOSION = "LR_SPIKE@high", "LARGE_LR@high", "GRADIENT_EXPLOSION@high"
LOW_PRECISION, NAN_BATCH = "LOW_PRECISION_ATTENTION@high", "NAN_BATCH"
IMBALANCE, LOST_EXPERTS = "ROUTER_IMBALANCE:imbalance_factor=0.9", "EXPERT_FAILURE@high"
FAULTS: Mapping[str, tuple[str, ...]] = {
    "tiny-llama": (LR_SPIKE, LARGE_LR, EXPLOSION, LOW_PRECISION, NAN_BATCH),
    "tiny-moe": (IMBALANCE, LOST_EXPERTS),
}
"""Model → faults as they are spelled; a fault that lasts by its own definition does so to the end."""
DETECTORS: Mapping[str, tuple[str, ...]] = {"tiny-moe": (*DEFAULT_DETECTORS, "router_collapse")}
"""Model → detectors of its monitor, where they are not the default ones."""
MECHANISM: Mapping[str, tuple[str, ...]] = {"tiny-moe": ("router",)}
"""Model → monitors of its mechanism."""
STRIDE = 5
"""Steps between two looks at the mechanism: runs are short."""
MITIGATIONS: Mapping[str, Mitigation] = {
    "SmoothSingularValues": Mitigation(lambda: SmoothSingularValues(when=_on_alert()), (LOW_PRECISION, LARGE_LR)),
    "QkNormalisation": Mitigation(lambda: QkNormalisation(when=_on_alert()), (LOW_PRECISION, LARGE_LR)),
    "LowerLearningRate": Mitigation(lambda: LowerLearningRate(factor=0.1, when=_on_alert()), (LR_SPIKE, LARGE_LR)),
    "ClipGradients": Mitigation(ClipGradients, (EXPLOSION, LR_SPIKE)),
    "SkipUpdate": Mitigation(lambda: SkipUpdate(certain=False), (EXPLOSION, NAN_BATCH)),
    "ResetRouterBias": Mitigation(
        lambda: ResetRouterBias(when=InterventionRule(on=("router_collapse",))), (IMBALANCE,), ("tiny-moe",)
    ),
}


def schedule(steps: int) -> RealStudyPlan:
    """Training of a run: small batches, so that all of the plan takes minutes."""
    return RealStudyPlan(
        repetitions=1, cells=(), controls=1, steps=steps, rows=8, workers=2, eval_every=20, judge_every=5, device="cpu"
    )
