"""Plan of the mechanism study: groups that share a healthy twin, each fault at several strengths."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmetric.detectors import OwnPastDetector
from rmetric.errors import UserError
from rmetric.faults import NO_FAULT, Fault, file_name_part, parse_fault
from rmetric.streams import stable_hash
from studies.real_runs.plan import RealSpec, RealStudyPlan, numbered

LPA, LR = "LOW_PRECISION_ATTENTION:bias_ulp={}", "LARGE_LR:factor={}"
BOTH = f"{LPA}+{LR}"
UNITS = {
    "bias_ulp": "{:g} ulp",
    "factor": "×{:g}",
    "imbalance_factor": "share {:g}",
    "experts": "experts {:g}",
}
"""Format of the strength of a fault, by its parameter."""


@dataclass(frozen=True)
class Group:
    """Runs of one model and batch size; with a seed, they share a healthy twin."""

    model: str
    rows: int
    """Sequences a step."""
    faults: tuple[str, ...]
    """Faults as they are written on the command line."""


GROUPS = (
    Group(
        "tiny-llama",
        16,
        (
            *map(LPA.format, (16, 32, 48)),
            *map(LR.format, (2, 4, 10, 30)),
            BOTH.format(16, 4),
            BOTH.format(32, 10),
        ),
    ),
    Group("tiny-llama", 8, tuple(map(LR.format, (4, 10, 30)))),
    Group("tiny-llama", 32, tuple(map(LR.format, (4, 10, 30)))),
    Group(
        "tiny-moe",
        16,
        (
            LPA.format(48),
            LR.format(10),
            "ROUTER_IMBALANCE:imbalance_factor=0.7",
            "ROUTER_IMBALANCE:imbalance_factor=0.9",
            "EXPERT_FAILURE:experts=1",
            "EXPERT_FAILURE:experts=3",
        ),
    ),
)


@dataclass(frozen=True, kw_only=True)
class MechanismSpec(RealSpec):
    """One run; its ``severity`` is the strength in words."""

    rows: int
    """Sequences a step."""
    spelling: str = NO_FAULT
    """The fault as it is written on the command line; ``NONE``: the healthy twin."""

    @property
    def experiment_id(self) -> str:
        kind = file_name_part(self.fault)
        kind += "" if self.fault == NO_FAULT else "_" + re.sub(r"[^0-9.]+", "-", self.severity).strip("-")
        return f"run_{self.number:03d}_{self.model}_{self.rows}rows_{kind}_rep{self.repetition}"

    def make_fault(self) -> Fault | None:
        return None if self.spelling == NO_FAULT else parse_fault(self.spelling)


@dataclass(frozen=True, kw_only=True)
class MechanismPlan:
    """Plan of the trainings. Two plans that are equal give the same losses on the same machine and libraries."""

    seed: int = 1
    """Seed of all seeds and onsets. The detectors' scales were chosen on runs of 0 and 7."""
    seeds: int = 3
    """Weights and batches that each group is trained with; thresholds for one are fitted on the others."""
    steps: int = 800
    """The horizon."""
    stride: int = 10
    """Steps between measurements of the mechanism."""
    groups: tuple[Group, ...] = GROUPS
    eval_every: int = 20
    """Steps between validation losses, which detectors see."""
    judge_every: int = 5
    """Steps between the held-out losses that decide whether a run failed."""
    length: int = 32
    """Bytes a sequence."""
    workers: int = 4
    """Equal parts of a batch."""
    device: str = "auto"

    def __post_init__(self) -> None:
        if self.seeds < 2:
            raise UserError("thresholds of one seed are fitted on the others; give --seeds 2 at least")
        if self.steps // 3 < OwnPastDetector.warm_up * self.stride:
            raise UserError(
                f"{self.steps} steps measured every {self.stride} are too few for detectors to have warmed up before "
                "the fault; give more --steps, or a smaller --stride"
            )
        for group in self.groups:
            if group.rows % self.workers:
                raise UserError(f"a batch of {group.rows} cannot be shared by {self.workers} workers")

    @classmethod
    def smoke(cls, **changes: Any) -> MechanismPlan:
        """Ten runs: a strong fault of each kind, two seeds."""
        groups = (
            Group("tiny-llama", 8, (LPA.format(64), LR.format(30))),
            Group("tiny-moe", 8, ("ROUTER_IMBALANCE:imbalance_factor=0.9",)),
        )
        return cls(**{"groups": groups, "seeds": 2, "steps": 100, "stride": 2, **changes})

    def specs(self) -> list[MechanismSpec]:
        """All runs in order: group, fault, seed; the twins last in each group."""
        specs = []
        for place, group in enumerate(self.groups):
            for spelling in (*group.faults, NO_FAULT):
                specs += [self._spec(place, group, spelling, repetition + 1) for repetition in range(self.seeds)]
        return numbered(specs)

    def training(self, rows: int) -> RealStudyPlan:
        """Plan of the trainings of a batch size."""
        return RealStudyPlan(
            seed=self.seed,
            repetitions=1,
            steps=self.steps,
            cells=(),
            controls=1,
            eval_every=self.eval_every,
            judge_every=self.judge_every,
            rows=rows,
            length=self.length,
            workers=self.workers,
            device=self.device,
        )

    def _spec(self, place: int, group: Group, spelling: str, repetition: int) -> MechanismSpec:
        # Groups have seeds of their own: runs of one model and seed, whatever their batches, count as forks of one.
        seed = 1_000_000 * self.seed + 1000 * place + repetition
        fault = None if spelling == NO_FAULT else parse_fault(spelling)
        return MechanismSpec(
            model=group.model,
            optimizer="adamw",
            rows=group.rows,
            fault=fault.label if fault else NO_FAULT,
            severity=strength_of(spelling),
            spelling=spelling,
            seed=seed,
            onset=self._onset(group, repetition) if fault else None,
            repetition=repetition,
        )

    def _onset(self, group: Group, repetition: int) -> int:
        """Uniform between a third and half of the run, on no grid; one for all faults of a group and seed."""
        key = f"mechanism/{group.model}/{group.rows}/{repetition}"
        rng = np.random.default_rng((self.seed, stable_hash(key)))
        return int(rng.integers(self.steps // 3 + 1, self.steps // 2, endpoint=True))


def strength_of(spelling: str) -> str:
    """Strength of a fault, in words.

    >>> strength_of("LOW_PRECISION_ATTENTION:bias_ulp=32+LARGE_LR:factor=4"), strength_of("NONE")
    ('32 ulp, ×4', 'none')
    """
    if spelling == NO_FAULT:
        return "none"
    said = re.findall(r"(\w+)=([0-9.]+)", spelling)
    return ", ".join(UNITS.get(name, name + " {:g}").format(float(value)) for name, value in said) or "default"
