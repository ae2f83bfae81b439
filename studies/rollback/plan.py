"""Plan: runs that fail, most of them recorded, grouped by the healthy steps that they share, in two scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from rmetric.faults import Fault
from rmetric.live.run import LiveRun
from studies.zoo.plan import SEVERITY, ZooPlan, ZooSpec
from studies.zoo.training import KINDS, KindRun

KINDS_TAKEN = ("cnn_sgd", "lstm_sgd", "word_tied", "mlp_lion", "spectrogram_cnn", "image_denoising")
"""Quick kinds of the zoo: images, text, tables, speech."""
BUGS_TAKEN = (
    "NAN_BATCH", "LAYER_REINITIALISED", "LABEL_MAP_SHIFT", "MISSING_ZERO_GRAD", "STALE_WEIGHTS", "LARGE_LR:factor=100",
    "GRADIENT_SIGN",
)  # fmt: skip
"""As they are spelled; of these, the recorded runs that failed."""
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
    schedule: ZooPlan
    spec: ZooSpec
    runs: tuple[Failing, ...]

    def make_run(self) -> LiveRun:
        """The run before its first step."""
        return KindRun(KINDS[self.spec.kind](), self.spec.seed, self.schedule.steps)


def groups(data: Path) -> list[Group]:
    """Groups of the plan, from the index of the published bugs in a folder."""
    table = pd.read_csv(data / "bugs_index.csv", index_col="run")
    failed = table.loc[table["outcome"] == "failed", "onset"]
    onsets = {str(run): int(onset) for run, onset in failed.items()}
    return [_group(kind, onsets) for kind in KINDS_TAKEN]


def _group(kind: str, onsets: Mapping[str, int]) -> Group:
    """Runs of a kind; ``onsets``: run that failed → first step with its fault."""
    specs = [ZooSpec(kind=kind, seed=0, fault=bug, onset=0) for bug in BUGS_TAKEN]
    runs = [
        Failing(spec.experiment_id, fault.label, SEVERITY, onsets[spec.experiment_id], fault)
        for spec in specs
        if spec.experiment_id in onsets and (fault := spec.make_fault()) is not None
    ]
    return Group(f"{kind}_0", ZooPlan.with_bugs(), ZooSpec(kind=kind, seed=0), tuple(runs))
