"""Plan of the real runs: the matrix of the simulated study on tiny models, and a set that nothing is fitted to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from rmetric.architectures import ARCHITECTURES
from rmetric.errors import UserError
from rmetric.faults import FAULTS, NO_FAULT, SEVERITIES, Fault, fault_parts, file_name_part, parse_fault
from rmetric.streams import stable_hash
from studies.paper.plan import COMMON_FAULTS, CONTROLS_PER_REPETITION, needs_experts
from studies.real_runs.disturbances import DISTURBANCES

S = TypeVar("S", bound="RealSpec")
TRAINING_VERSION = 2
"""Raise it when the same plan trains, measures or logs otherwise: studies that were begun before are then not resumed
(:mod:`rmetric.versions`)."""
STAND_INS = {"llama-3-8b": "tiny-llama", "mistral-7b": "tiny-mistral", "gpt-4-moe": "tiny-moe"}
"""Architecture of the study → the tiny model of that kind."""
SETTINGS: Mapping[tuple[str, str], str] = {
    **{("NETWORK_DEGRADATION", severity): "live_time_scale=0.05" for severity in SEVERITIES},
    ("GQA_MISMATCH", "high"): "layer_share=1.0",
}
"""(fault, severity) → parameters that a model of two layers and 20 ms a step needs: delays are scaled to its step, and
the highest severity of a fault of some layers is a fault of both."""
TURNS = (None, *DISTURBANCES)
"""Control runs that are nobody's twin take turns: undisturbed, then each disturbance."""


@dataclass(frozen=True)
class Cell:
    """One model under one optimizer, and the faults that it gets."""

    model: str
    faults: tuple[str, ...]
    optimizer: str = "adamw"


MATRIX = tuple(
    Cell(STAND_INS[name], (*COMMON_FAULTS, *profile.native_faults)) for name, profile in ARCHITECTURES.items()
)
"""The three architectures of the study, eight faults each."""
UNSEEN_FAULT = "LARGE_LR"
"""No run of the matrix has it."""
TRANSFER = (
    Cell("tiny-qwen", (*COMMON_FAULTS, "RMS_NORM_ERROR", UNSEEN_FAULT)),
    Cell("tiny-llama", (*COMMON_FAULTS, "RMS_NORM_ERROR", UNSEEN_FAULT), optimizer="sgd"),
    Cell("tiny-llama", (*COMMON_FAULTS, "RMS_NORM_ERROR", UNSEEN_FAULT), optimizer="adafactor"),
)
"""A model, two optimizers and a fault that no run of the matrix has."""
PLACES = {(cell.model, cell.optimizer): place for cells in (MATRIX, TRANSFER) for place, cell in enumerate(cells)}
"""Model and optimizer → place in the set that has them: a cell has the same seeds in every part of that set."""


@dataclass(frozen=True, kw_only=True)
class RealSpec:
    """One real run. Runs of one model, optimizer and seed share their healthy steps."""

    model: str
    optimizer: str
    fault: str = NO_FAULT
    severity: str = "medium"
    disturbance: str | None = None
    """Disturbance of a control run: one of :data:`DISTURBANCES`, or ``None``."""
    seed: int
    """Seed of the weights, the batches and the fault's own draws."""
    onset: int | None
    """First disturbed step, of a fault or of a disturbance; ``None`` for a control run that nothing happens to."""
    repetition: int
    number: int = 0
    """Number of the run in its study."""
    twin: str | None = None
    """Name of the healthy twin that it is a fork of; ``None``: it is one, or its twin leaves no log."""

    @property
    def experiment_id(self) -> str:
        """Name of the run, and of its log without the ending."""
        model = self.model if self.optimizer == "adamw" else f"{self.model}-{self.optimizer}"
        kind = file_name_part(self.fault)
        if self.fault == NO_FAULT:
            kind += f"_{self.disturbance}" if self.disturbance else ""
        else:
            kind += f"_{self.severity}"
        return f"run_{self.number:03d}_{model}_{kind}_rep{self.repetition}"

    @property
    def group(self) -> tuple[str, str, int]:
        """Key that runs share whose healthy steps are the same."""
        return self.model, self.optimizer, self.seed

    def make_fault(self) -> Fault | None:
        """The fault with its parameters; ``None`` for a control run."""
        if self.fault == NO_FAULT:
            return None
        parts = [f"{part}@{self.severity}{_settings(part, self.severity)}" for part in fault_parts(self.fault)]
        return parse_fault("+".join(parts))


def _settings(fault: str, severity: str) -> str:
    settings = SETTINGS.get((fault, severity))
    return f":{settings}" if settings else ""


@dataclass(frozen=True, kw_only=True)
class RealStudyPlan:
    """Plan of the trainings. Two plans that are equal give the same losses on the same machine and libraries."""

    seed: int = 0
    repetitions: int = 8
    steps: int = 720
    """The horizon."""
    cells: tuple[Cell, ...] = MATRIX
    severities: tuple[str, ...] = SEVERITIES
    controls: int = 8 * CONTROLS_PER_REPETITION
    """Control runs of each cell; the first ``repetitions`` of them are the twins of the faulty runs."""
    eval_every: int = 20
    """Steps between validation losses, which detectors see."""
    judge_every: int = 5
    """Steps between the held-out losses that decide whether a run failed."""
    rows: int = 16
    """Sequences a step."""
    length: int = 32
    """Bytes a sequence: twice the sliding window of the tiny Mistral."""
    workers: int = 4
    """Equal parts of a batch, whose gradient norms make σ²."""
    device: str = "auto"

    def __post_init__(self) -> None:
        if self.controls < self.repetitions:
            raise UserError(f"{self.repetitions} repetitions need as many control runs at least: they are the twins")
        if self.steps < 4 * self.judge_every:
            raise UserError(f"runs of {self.steps} steps are too short to be judged every {self.judge_every} steps")

    @classmethod
    def smoke(cls, **changes: Any) -> RealStudyPlan:
        """24 runs: each model, seven of its faults once at high severity, and their twin."""
        seven = tuple(replace(cell, faults=cell.faults[1:]) for cell in MATRIX)
        twins = changes.get("repetitions", 1)
        settings = {"repetitions": 1, "severities": ("high",), "controls": twins, "steps": 240, "cells": seven}
        return cls(**{**settings, **changes})

    @classmethod
    def transfer(cls, **changes: Any) -> RealStudyPlan:
        """132 runs of :data:`TRANSFER`: each fault twice at medium and at high severity, 12 controls each."""
        settings = {"repetitions": 2, "severities": ("medium", "high"), "controls": 12, "cells": TRANSFER}
        return cls(**{**settings, **changes})

    def only(self, architectures: Sequence[str], faults: Sequence[str]) -> RealStudyPlan:
        """This plan limited to some architectures of the matrix, with these faults, if any are given, for its own.

        The cells of :meth:`transfer` stand in for no architecture and are kept.
        """
        models = {STAND_INS[name] for name in architectures if name in STAND_INS}
        cells = [cell for cell in self.cells if self.cells == TRANSFER or cell.model in models]
        if faults:
            cells = [replace(cell, faults=_fitting(cell, faults)) for cell in cells]
            if not any(cell.faults for cell in cells):
                raise UserError(f"{', '.join(faults)} needs a mixture-of-experts model; add gpt-4-moe")
        return replace(self, cells=tuple(cells))

    def specs(self) -> list[RealSpec]:
        """All runs in order: cell, fault, severity, repetition; controls last in each cell."""
        specs = []
        for cell in self.cells:
            for fault in cell.faults:
                for severity in self.severities:
                    specs += [self._faulty(cell, fault, severity, r + 1) for r in range(self.repetitions)]
            specs += [self._control(cell, number + 1) for number in range(self.controls)]
        return numbered(specs)

    def _faulty(self, cell: Cell, fault: str, severity: str, repetition: int) -> RealSpec:
        for part in fault_parts(fault):
            FAULTS[part]
        seed = self._seed(cell, repetition)
        onset = self._onset(f"{cell.model}/{cell.optimizer}/{seed}/{fault}/{severity}")
        return RealSpec(
            model=cell.model,
            optimizer=cell.optimizer,
            fault=fault,
            severity=severity,
            seed=seed,
            onset=onset,
            repetition=repetition,
        )

    def _control(self, cell: Cell, repetition: int) -> RealSpec:
        seed = self._seed(cell, repetition)
        # Two in a row have the same turn, so that both halves of the seeds get every disturbance.
        turn = (repetition - self.repetitions - 1) // 2 % len(TURNS)
        disturbance = None if repetition <= self.repetitions else TURNS[turn]
        onset = self._onset(f"{cell.model}/{cell.optimizer}/{seed}/{disturbance}") if disturbance else None
        return RealSpec(
            model=cell.model,
            optimizer=cell.optimizer,
            disturbance=disturbance,
            seed=seed,
            onset=onset,
            repetition=repetition,
        )

    def _seed(self, cell: Cell, repetition: int) -> int:
        # Even numbers are added, so that a seed is as odd as its repetition: forks stay in one half of the split.
        return 1_000_000 * self.seed + 1000 * PLACES[cell.model, cell.optimizer] + repetition

    def _onset(self, key: str) -> int:
        """Uniform over the middle half of the run, on no grid."""
        rng = np.random.default_rng((self.seed, stable_hash(f"onset/{key}")))
        return int(rng.integers(self.steps // 4 + 1, self.steps * 3 // 4, endpoint=True))


def _fitting(cell: Cell, faults: Sequence[str]) -> tuple[str, ...]:
    """Faults that the model can have: experts fail where there are some."""
    return tuple(fault for fault in faults if cell.model == STAND_INS["gpt-4-moe"] or not needs_experts(fault))


def numbered(specs: Iterable[S]) -> list[S]:
    """The runs of a whole study in order, each with its number and the name of its twin."""
    runs = [replace(spec, number=number) for number, spec in enumerate(specs)]
    twins = {run.group: run.experiment_id for run in runs if run.onset is None}
    return [run if run.onset is None else replace(run, twin=twins.get(run.group)) for run in runs]


def groups_of(specs: Sequence[S]) -> list[list[S]]:
    """Runs by what they share. Groups of low repetitions come first and models take turns, so that the runs which are
    there after half of the time are a fair part of the study."""
    groups: dict[tuple[str, str, int], list[S]] = defaultdict(list)
    for spec in specs:
        groups[spec.group].append(spec)
    return sorted(groups.values(), key=lambda group: (-len(group), group[0].repetition, group[0].number))
