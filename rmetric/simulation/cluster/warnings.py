"""What a detector sees of the failures of a job: measured on the runs of a study, drawn anew for each replicate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from rmetric.errors import UserError
from rmetric.evaluation.evaluator import CALIBRATED, Evaluator
from rmetric.evaluation.intervals import resample
from rmetric.simulation.cluster.components import CLASSES, CORRUPTION, STANDS_FOR
from rmetric.simulation.cluster.job import Job
from rmetric.streams import RunStreams

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Warnings:
    """A detector, told by the runs it was scored on: recall and lead are never summed up, but drawn together."""

    seen_steps: Mapping[str, Floats]
    """Fault → one number a failed run, shape (failed runs,), NaN if it was not warned; faults that are missing never
    are. Of silent corruption: steps from the corruption to the warning, which leads to a rollback to before it. Of all
    others: steps from the warning to the failure, in which a checkpoint can be written."""
    false_alarms: Floats
    """Episodes in the healthy steps of each run, shape (runs,)."""
    healthy_steps: Floats
    """Distinct ones of each run, shape (runs,)."""
    symptoms: float = 1.0
    """Share of the failures of the components that ail first as the injected fault does; the others are not warned.
    Nobody has measured it: 1 gives the most that warnings can save."""

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.seen_steps if kind not in CLASSES]
        if unknown:
            raise UserError(f"no component fails by {unknown[0]}; known: {', '.join(CLASSES)}")
        if not 0.0 <= self.symptoms <= 1.0:
            raise UserError(f"symptoms must be a share from 0 to 1, not {self.symptoms}")

    @classmethod
    def perfect(cls, job: Job) -> Self:
        """Every failure is warned just in time to write a checkpoint, corruption at once; no false alarm."""
        in_time = np.full(1, np.ceil(job.write_s / job.step_time_s) + 1.0)
        steps = dict.fromkeys(CLASSES, in_time) | {CORRUPTION: np.zeros(1)}
        return cls(seen_steps=steps, false_alarms=np.zeros(1), healthy_steps=np.ones(1))

    @property
    def false_alarms_per_step(self) -> float:
        """Of all runs together."""
        return float(self.false_alarms.sum() / self.healthy_steps.sum())

    def recall(self, kind: str) -> float:
        """Share of a class's failed runs that were warned; 0 where nothing was measured.

        >>> Warnings.perfect(Job(gpus=8)).recall("NODE_FAILURE")
        1.0
        """
        steps = self.seen_steps.get(kind, np.empty(0))
        return float(np.mean(~np.isnan(steps))) if len(steps) else 0.0

    def drawn(self, streams: RunStreams, replicates: int) -> Drawn:
        """One detector a replicate: the bootstrap over runs carries into every interval how few runs there were."""
        steps = {}
        for kind, seen in self.seen_steps.items():
            if len(seen):
                (rng,) = streams.generators(f"runs of {kind}")
                steps[kind] = seen[rng.integers(len(seen), size=(replicates, len(seen)))]
        (rng,) = streams.generators("healthy runs")
        weights = resample(len(self.healthy_steps), replicates, rng)
        healthy = np.maximum(weights @ self.healthy_steps, 1.0)
        return Drawn(steps, weights @ self.false_alarms / healthy)


@dataclass(frozen=True)
class Drawn:
    """Detectors of all replicates."""

    seen_steps: Mapping[str, Floats]
    """Fault → shape (replicates, failed runs)."""
    false_alarms_per_step: Floats
    """Shape (replicates,)."""


@dataclass(frozen=True)
class Measured:
    """Warnings of a detector, or why there are none."""

    warnings: Warnings | None
    reason: str = ""


def measured(ev: Evaluator, detector: str = CALIBRATED) -> Measured:
    """On the score half, strict, at the threshold that keeps the false-alarm budget on the fit half."""
    if detector not in ev.detectors:
        return Measured(None, f"{detector} was not asked for")
    budgeted = ev.budgeted(detector)
    if budgeted.counts is None:
        return Measured(None, budgeted.reason)
    counts = budgeted.counts
    half = ev.halves.score & counts.counted
    healthy = half & (counts.healthy_steps > 0)
    if not healthy.any():
        return Measured(None, "the score half has no healthy step")
    seen = {}
    for kind in STANDS_FOR:
        failed = half & ev.runs_where(fault=kind) & (counts.tp + counts.fn > 0)
        delays = np.maximum(counts.available - counts.lead, 0.0)
        seen[kind] = (delays if kind == CORRUPTION else counts.lead)[failed]
    warnings = Warnings(
        seen_steps=seen,
        false_alarms=counts.fp[healthy].astype(np.float64),
        healthy_steps=counts.healthy_steps[healthy].astype(np.float64),
    )
    return Measured(warnings)
