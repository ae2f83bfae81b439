"""Policies of a job against its failures: checkpoints alone, with warnings, with repair; and a first-order formula."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors import ROBUST
from rmetric.errors import UserError
from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.scores import resample
from rmetric.replay.events import is_finite_number
from rmetric.streams import RunStreams
from studies.cluster.job import CLASSES, CORRUPTION, STANDS_FOR, Job

Floats = NDArray[np.float64]
CHECKPOINTS, WITH_WARNINGS, WITH_REPAIR, BOUND = "checkpoints", "+ warnings", "+ repair", "bound"
"""Names of the policies."""


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

    @classmethod
    def perfect(cls, job: Job) -> Self:
        """Every failure is warned just in time to write a checkpoint, corruption at once; no false alarm."""
        in_time = np.full(1, np.ceil(job.write_s / job.step_time_s) + 1.0)
        steps = dict.fromkeys(CLASSES, in_time) | {CORRUPTION: np.zeros(1)}
        return cls(seen_steps=steps, false_alarms=np.zeros(1), healthy_steps=np.ones(1))

    @property
    def false_alarms_per_step(self) -> float:
        """Rate over all runs together."""
        return float(self.false_alarms.sum() / self.healthy_steps.sum())

    def recall(self, kind: str) -> float:
        """Share of a class's failed runs that were warned; 0 where nothing was measured.

        >>> Warnings.perfect(Job(gpus=8)).recall("NODE_FAILURE")
        1.0
        """
        steps = self.seen_steps.get(kind, np.empty(0))
        return float(np.mean(~np.isnan(steps))) if len(steps) else 0.0

    def drawn(self, streams: RunStreams, replicates: int) -> DrawnWarnings:
        """One detector a replicate: the bootstrap over runs carries into every interval how few runs there were."""
        steps = {}
        for kind, seen in self.seen_steps.items():
            if len(seen):
                (rng,) = streams.generators(f"runs of {kind}")
                steps[kind] = seen[rng.integers(len(seen), size=(replicates, len(seen)))]
        (rng,) = streams.generators("healthy runs")
        weights = resample(len(self.healthy_steps), replicates, rng)
        healthy = np.maximum(weights @ self.healthy_steps, 1.0)
        return DrawnWarnings(steps, weights @ self.false_alarms / healthy)


@dataclass(frozen=True)
class DrawnWarnings:
    """Detectors of all replicates."""

    seen_steps: Mapping[str, Floats]
    """Fault → shape (replicates, failed runs)."""
    false_alarms_per_step: Floats
    """Shape (replicates,)."""


@dataclass(frozen=True)
class MeasuredWarnings:
    """Warnings of a detector, or why there are none."""

    warnings: Warnings | None
    reason: str = ""
    of_settings: bool = False
    """Whether its threshold is that of its settings (:class:`rmetric.evaluation.evaluator.Budgeted`)."""


def measured_warnings(ev: Evaluator, detector: str = ROBUST) -> MeasuredWarnings:
    """Warnings on the score half, strict, at the threshold of :meth:`Evaluator.budgeted`."""
    if detector not in ev.detectors:
        return MeasuredWarnings(None, f"{detector} was not asked for")
    budgeted = ev.budgeted(detector)
    if budgeted.counts is None:
        return MeasuredWarnings(None, budgeted.reason)
    counts = budgeted.counts
    half = ev.halves.score & counts.counted
    healthy = half & (counts.healthy_steps > 0)
    if not healthy.any():
        return MeasuredWarnings(None, "the score half has no healthy step")
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
    return MeasuredWarnings(warnings, of_settings=budgeted.of_settings)


@dataclass(frozen=True, kw_only=True)
class RepairEffect:
    """A corrupted step is computed once more before its update is kept."""

    share: float = 0.99
    """Share of the harmful corruptions that are repaired: an assumption unless a campaign has measured it."""
    overhead_pct: float = 1.0
    """Share of the compute that the watch costs, %.

    **Source:** Altenbernd, Wiesner, Kao 2026, arXiv 2604.00726, unless a campaign has measured it.
    """
    share_measured: bool = False
    overhead_measured: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise UserError(f"the repaired share must be from 0 to 1, not {self.share}")
        if not 0.0 <= self.overhead_pct < math.inf:
            raise UserError(f"the overhead of repair must be at least 0 %, not {self.overhead_pct}")

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> Self:
        """Effect by a campaign's ``summary.json``; what it does not say stays assumed.

        >>> RepairEffect.of({"repaired_share": 0.995, "repair_overhead_pct": -0.02})
        RepairEffect(share=0.995, overhead_pct=0.0, share_measured=True, overhead_measured=True)
        """
        share, overhead = summary.get("repaired_share"), summary.get("repair_overhead_pct")
        found: dict[str, Any] = {}
        if is_finite_number(share):
            found |= {"share": float(share), "share_measured": True}
        if is_finite_number(overhead):  # a cost below the noise of a clock is none
            found |= {"overhead_pct": max(float(overhead), 0.0), "overhead_measured": True}
        return cls(**found)


@dataclass(frozen=True, kw_only=True)
class JobPolicy:
    """Checkpoints at the job's interval, and what is added to them."""

    name: str
    warnings: Warnings | None = None
    repair: RepairEffect | None = None
    undefined: str = ""
    """Reason why nothing can be said about this policy; empty if there is none."""


def policies(job: Job, found: MeasuredWarnings, repair: RepairEffect) -> list[JobPolicy]:
    """The three, and a bound: all failures warned in time, all corruption repaired, at no cost."""
    why = found.reason
    perfect = RepairEffect(share=1.0, overhead_pct=0.0)
    return [
        JobPolicy(name=CHECKPOINTS),
        JobPolicy(name=WITH_WARNINGS, warnings=found.warnings, undefined=why),
        JobPolicy(name=WITH_REPAIR, warnings=found.warnings, repair=repair, undefined=why),
        JobPolicy(name=BOUND, warnings=Warnings.perfect(job), repair=perfect),
    ]


def expected_tor(job: Job, policy: JobPolicy) -> float:
    """Training Overhead Ratio to first order in the rates of failure.

    .. math:: \\mathrm{TOR} = \\frac{1 - \\sum_k \\lambda_k L_k}{1 + d + c / \\tau}

    with λ_k the failures an hour of a class, L_k the mean hours that one of them costs, d the drag of false alarms and
    watch, c the write of a checkpoint and τ the work between two. It neglects that failures strike during restarts and
    that leads may be longer than the time since the failure before.
    """
    drag = 0.0
    if policy.warnings is not None:
        drag += policy.warnings.false_alarms_per_step * job.write_s / job.step_time_s
    if policy.repair is not None:
        drag += policy.repair.overhead_pct / 100.0
    lost = sum(rate * _lost_h(job, policy, kind, drag) for kind, rate in job.rates_per_h.items())
    return (1.0 - lost) / (1.0 + drag + job.write_h / job.interval_h)


def _lost_h(job: Job, policy: JobPolicy, kind: str, drag: float) -> float:
    """Hours that a failure of this class costs on average."""
    cycle = job.interval_h * (1.0 + drag) + job.write_h
    seen_h = np.full(1, np.nan)
    symptoms = 1.0
    if policy.warnings is not None:
        found = policy.warnings.seen_steps.get(kind, np.empty(0))
        seen_h = found * job.step_h if len(found) else seen_h
        symptoms = 1.0 if kind == CORRUPTION else policy.warnings.symptoms
    if kind == CORRUPTION:
        vain = np.where(np.isnan(seen_h), sum(job.vain_steps) / 2.0 * job.step_h, seen_h).mean() * (1.0 + drag)
        share = policy.repair.share if policy.repair else 0.0
        return float(share * job.step_h + (1.0 - share) * (job.restart_h + cycle / 2.0 + vain))
    in_time = seen_h >= job.write_h
    after = np.where(in_time, np.mod(seen_h - job.write_h, cycle) + job.write_h, cycle / 2.0)
    return float(job.restart_h + symptoms * after.mean() + (1.0 - symptoms) * cycle / 2.0)
