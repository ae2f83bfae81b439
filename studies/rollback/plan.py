"""Plan: runs that fail, most of them recorded, grouped by the healthy steps that they share, in two scenarios."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from rmetric.evaluation.ground_truth import WORKER_LOST
from rmetric.faults import Fault, parse_fault
from rmetric.live.run import LiveRun
from rmetric.twins.snapshots import Schedule
from studies.real_runs.plan import RealSpec, RealStudyPlan
from studies.real_runs.run import fresh_run
from studies.zoo.plan import ZooPlan, ZooSpec
from studies.zoo.training import KINDS, KindRun

ZOO_KINDS = (
    "cnn_sgd", "lstm_sgd", "word_tied", "mlp_lion", "spectrogram_cnn", "cnn_bf16", "molecules_pooled",
    "gcn_communities",
)  # fmt: skip
"""Quick kinds of the zoo; all of their bugs that failed are taken."""
FAULTED_KINDS = ("word_tied", "spectrogram_cnn", "mlp_lion", "gcn_communities")
ZOO_FAULTS = ("LR_SPIKE@high", "LARGE_LR@high")
ZOO_FAULT_ONSET = 500
"""Faults that these kinds get besides; no index says which of them fail."""
REAL_MODELS = ("tiny-llama",)
REAL_SEEDS = (1,)
PASSES_STEPS = 50
SCENARIOS: dict[str, int | None] = {"stays": None, "passes": PASSES_STEPS}
"""Scenario → steps that every fault lasts; ``None``: as it was recorded, mostly to the end of the run."""


@dataclass(frozen=True)
class Failing:
    """A recorded run that failed."""

    name: str
    fault: str
    severity: str
    onset: int
    fault_object: Fault
    known: bool = True
    """Whether it is known to fail alone, as long as its fault lasts as it was recorded."""

    def fault_in(self, scenario: str) -> Fault:
        """The fault, as long as the scenario says."""
        steps = SCENARIOS[scenario]
        own = self.fault_object.duration_steps
        return (
            self.fault_object if steps is None or 0 < own <= steps else replace(self.fault_object, duration_steps=steps)
        )


@dataclass(frozen=True)
class Group:
    """Failing runs that share a twin."""

    name: str
    schedule: Schedule
    spec: RealSpec | ZooSpec
    runs: tuple[Failing, ...]

    def make_run(self) -> LiveRun:
        """The run before its first step."""
        if isinstance(self.spec, RealSpec):
            assert isinstance(self.schedule, RealStudyPlan)
            return fresh_run(self.schedule, self.spec)
        return KindRun(KINDS[self.spec.kind](), self.spec.seed, self.schedule.steps)


def groups(data: Path) -> list[Group]:
    """Groups of the plan, from the indices of the published runs in a folder."""
    zoo, real = ZooPlan.with_bugs(), RealStudyPlan(device="cpu")
    return [
        *_faulted(zoo),
        *_groups(_failed(data / "bugs_index.csv", ZOO_KINDS), zoo, _zoo_spec),
        *_groups(_failed(data / "real_runs_index.csv", REAL_MODELS, REAL_SEEDS), real, _real_spec),
    ]


def _faulted(schedule: ZooPlan) -> Iterator[Group]:
    """Kinds of the zoo with the faults of the simulated study."""
    for kind in FAULTED_KINDS:
        faults = {text: parse_fault(text) for text in ZOO_FAULTS}
        runs = [
            Failing(f"{kind}_{text}", fault.name, text.split("@")[1], ZOO_FAULT_ONSET, fault, known=False)
            for text, fault in faults.items()
        ]
        yield Group(f"{kind}_faults", schedule, ZooSpec(kind=kind, seed=0), tuple(runs))


def _failed(index: Path, models: Sequence[str], seeds: Sequence[int] | None = None) -> pd.DataFrame:
    """Runs that failed; a worker that is lost cannot be brought back by older weights, and is left out."""
    table = pd.read_csv(index)
    chosen = (table["outcome"] == "failed") & (table["reason"] != WORKER_LOST) & table["model"].isin(models)
    return table[chosen & table["seed"].isin(seeds)] if seeds else table[chosen]


def _groups(table: pd.DataFrame, schedule: Schedule, spec_of: Any) -> list[Group]:
    made = []
    for (model, seed), rows in table.groupby(["model", "seed"], sort=False):
        specs = [(row, spec_of(row)) for row in rows.itertuples()]
        runs = [_failing(row, spec.make_fault()) for row, spec in specs]
        made.append(Group(f"{model}_{seed}", schedule, specs[0][1], tuple(runs)))
    return made


def _failing(row: Any, fault: Fault) -> Failing:
    return Failing(row.run, row.fault, row.severity, int(row.onset), fault)


def _zoo_spec(row: Any) -> ZooSpec:
    return ZooSpec(kind=row.model, seed=int(row.seed), fault=row.fault, onset=int(row.onset))


def _real_spec(row: Any) -> RealSpec:
    return RealSpec(
        model=row.model,
        optimizer=row.optimizer,
        fault=row.fault,
        severity=row.severity,
        seed=int(row.seed),
        onset=int(row.onset),
        repetition=int(row.repetition),
    )
