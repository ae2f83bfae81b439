"""The 720 simulated runs: which they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rmetric.architectures import ARCHITECTURES
from rmetric.errors import UserError
from rmetric.faults import FAULTS, NO_FAULT, SEVERITIES, fault_parts
from rmetric.simulation import Conditions, RunSpec
from rmetric.streams import stable_hash

COMMON_FAULTS = (
    "LR_SPIKE",
    "GRADIENT_EXPLOSION",
    "DATA_CORRUPTION",
    "NODE_FAILURE",
    "NETWORK_DEGRADATION",
    "SILENT_DATA_CORRUPTION",
)
"""Faults that every architecture of the study gets; each has two more of its own."""

CONTROLS_PER_REPETITION = 6
AS_PUBLISHED = Conditions(crash=True, steady_loss=True, no_disturbances=True, exact_evaluation=True)
"""All of the author's conditions."""

BATCH_RUNS = 60
"""Runs that are simulated together: enough to be fast, few enough to keep memory constant."""


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """Plan of the simulated study. Two plans that are equal give the same bytes."""

    seed: int = 0
    repetitions: int = 8
    steps: int = 5000
    log_every: int = 10
    architectures: tuple[str, ...] = tuple(ARCHITECTURES)
    faults: tuple[str, ...] = ()
    """Faults instead of those of the matrix; empty: the matrix."""
    severities: tuple[str, ...] = SEVERITIES
    controls: int = 8 * CONTROLS_PER_REPETITION
    """Control runs of each architecture."""

    @classmethod
    def smoke(cls, **changes: Any) -> StudyPlan:
        """36 runs: each architecture, each of its faults once at medium severity, four controls."""
        return cls(**{"repetitions": 1, "severities": ("medium",), "controls": 4, **changes})

    def only(self, architectures: Sequence[str], faults: Sequence[str]) -> StudyPlan:
        """The same plan for some architectures, and with other faults than the matrix has unless there are none."""
        return replace(self, architectures=tuple(architectures), faults=tuple(faults))

    def specs(self) -> list[RunSpec]:
        """All runs in order: architecture, fault, severity, repetition; controls last in each architecture."""
        if not self.architectures:
            raise UserError("a study needs at least one architecture")
        specs = []
        for architecture in self.architectures:
            for fault in self._faults_of(architecture):
                for severity in self.severities:
                    specs += [
                        self._spec(architecture, fault, severity, repetition + 1)
                        for repetition in range(self.repetitions)
                    ]
            specs += [self._spec(architecture, NO_FAULT, "medium", number + 1) for number in range(self.controls)]
        return [replace(spec, number=number) for number, spec in enumerate(specs)]

    def _faults_of(self, architecture: str) -> Iterable[str]:
        profile = ARCHITECTURES[architecture]
        if not self.faults:
            return (*COMMON_FAULTS, *profile.native_faults)
        fitting = [fault for fault in self.faults if profile.experts or not needs_experts(fault)]
        if not fitting and len(self.architectures) == 1:
            raise UserError(f"{', '.join(self.faults)} needs a mixture-of-experts model; add gpt-4-moe")
        return fitting

    def _spec(self, architecture: str, fault: str, severity: str, repetition: int) -> RunSpec:
        # The seed hangs on the run's own name, so that leaving out other runs, or adding a fault, does not change it.
        key = f"{self.seed}/{architecture}/{fault}/{'' if fault == NO_FAULT else severity}/{repetition}"
        return RunSpec(
            architecture=architecture,
            fault=fault,
            severity=severity,
            seed=stable_hash(key),
            steps=self.steps,
            log_every=self.log_every,
            repetition=repetition,
        )


@dataclass(frozen=True, kw_only=True)
class PublishedPlan(StudyPlan):
    """The same runs under the author's conditions, as far as the published files show them.

    **Source:** M. Fatima 2025, and its author's files: a record every 100 of 5,000 steps, every fault at step 2,500.
    """

    log_every: int = 100
    onset: int | None = 2500
    """Step of every fault, which is an evaluation; ``None``: uniform over the middle half, on no grid."""
    conditions: Conditions = AS_PUBLISHED

    def _spec(self, architecture: str, fault: str, severity: str, repetition: int) -> RunSpec:
        spec = super()._spec(architecture, fault, severity, repetition)
        return replace(spec, conditions=self.conditions, onset=None if spec.is_control else self.onset)


def needs_experts(fault: str) -> bool:
    """Whether a fault, ``A`` or ``A+B``, makes sense for mixture-of-experts models only."""
    return any(FAULTS[part].needs_experts for part in fault_parts(fault))


def batches_of(specs: Sequence[RunSpec]) -> list[list[RunSpec]]:
    """Consecutive runs of one architecture, at most :data:`BATCH_RUNS` each."""
    batches: list[list[RunSpec]] = []
    for spec in specs:
        if not batches or len(batches[-1]) == BATCH_RUNS or batches[-1][0].architecture != spec.architecture:
            batches.append([])
        batches[-1].append(spec)
    return batches
