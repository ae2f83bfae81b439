"""Tables 17 and 17b: Training Overhead Ratio by size of the cluster, with checkpoints alone, warnings, and repair."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from rmetric.detectors import ROBUST
from rmetric.reporting.table import Cell, Column
from studies.catalogue import Inputs, Part, real_studies, table
from studies.cluster.job import CLASSES, CORRUPTION, STANDS_FOR, Job, counted, young
from studies.cluster.monte_carlo import REPLICATES, JobOutcome, outcomes
from studies.cluster.policies import (
    CHECKPOINTS,
    WITH_REPAIR,
    WITH_WARNINGS,
    MeasuredWarnings,
    RepairEffect,
    Warnings,
    measured_warnings,
    policies,
)

SIZES = (8, 64, 512, 4096, 16_384)
LARGEST = SIZES[-1]
POLICIES = (CHECKPOINTS, WITH_WARNINGS, WITH_REPAIR)
"""Without the bound."""


def by_size(
    found: MeasuredWarnings, repair: RepairEffect, sizes: tuple[int, ...], seed: int
) -> dict[int, dict[str, JobOutcome]]:
    """GPUs → policy → outcome; the same failures for all."""
    jobs = {gpus: Job(gpus=gpus) for gpus in sizes}
    return {gpus: outcomes(job, policies(job, found, repair), seed=seed) for gpus, job in jobs.items()}


@dataclass(frozen=True)
class Inquiry:
    """Sources of the tables: the detector and the repair as they were measured."""

    found: MeasuredWarnings
    repair: RepairEffect
    seed: int


def _inquiries(inputs: Inputs) -> Mapping[str, Inquiry]:
    """Sources from each real study, and from the corruption campaign if it was made."""
    repair = RepairEffect.of(inputs.live.corruption)
    return {study: Inquiry(measured_warnings(ev), repair, ev.seed) for study, ev in real_studies(inputs).items()}


@table(
    "table_17_overhead_ratio",
    "Training Overhead Ratio by size of the cluster (simulation)",
    "{model}",
    [
        Column("gpus", "GPUs"),
        Column("policy", "Policy"),
        Column("mtbf_h", "Between interruptions (h)", 2),
        Column("interval_min", "Between checkpoints (min)", 1),
        Column("tor", "TOR", 4),
        Column("gained", "Gained over checkpoints (points)", 2),
        Column("by_repair", "of it by repair", 2),
        Column("lost_gpu_hours", "Lost a day (GPU-h)", None),
        Column("lost_usd", "Lost a day (USD)", None),
    ],
    needs=_inquiries,
    about=("gpus", "policy"),
)
def overhead_ratio(source: Inquiry) -> Part:
    """One row a size and policy."""
    found, repair = source.found, source.repair
    rows = [
        _size_row(gpus, name, known)
        for gpus, known in by_size(found, repair, SIZES, source.seed).items()
        for name in known
    ]
    return Part(rows, {"model": caption(found, repair)})


def _size_row(gpus: int, name: str, known: Mapping[str, JobOutcome]) -> dict[str, Cell]:
    outcome = known[name]
    return {
        "gpus": gpus,
        "policy": name,
        "mtbf_h": outcome.job.mtbf_h,
        "interval_min": 60.0 * outcome.job.interval_h,
        "tor": outcome.tor,
        "gained": None if name == CHECKPOINTS else outcome.gained_points(known[CHECKPOINTS]),
        "by_repair": outcome.gained_points(known[WITH_WARNINGS]) if name == WITH_REPAIR else None,
        "lost_gpu_hours": outcome.lost_gpu_hours_a_day,
        "lost_usd": outcome.lost_usd_a_day,
    }


def caption(found: MeasuredWarnings, repair: RepairEffect) -> str:
    """The model in words, what is measured and what is assumed."""
    job = Job(gpus=LARGEST)
    fewest, most = job.vain_steps
    total = sum(counted(kind) for kind in CLASSES)
    return (
        f"TOR: T_optimal / T_observed (arXiv 2408.07482) of a job of {job.useful_days:g} useful days. Interruptions: "
        f"Poisson, {total} in 54 days on 16,384 GPUs (arXiv 2407.21783), in proportion to GPU-hours. Checkpoints: at "
        "Daly's interval (2006), the same for all policies of a size. Warnings: an early one has a checkpoint written, "
        "a false one costs a checkpoint, corruption is rolled back. Repair: a corrupted step is computed once more. "
        "Bound: all failures warned in time, all corruption repaired, at no cost. Intervals: what 95 % of "
        f"{REPLICATES:,} replicates lie in, each with a detector drawn from the scored runs; gains in pairs. "
        f"{_detector(found)} {_repair(repair)} Assumed: {job.write_s:g} s to write a checkpoint, {job.restart_s:g} s "
        f"to restart, {job.step_time_s:g} s a step, {job.usd_per_gpu_hour:.2f} USD a GPU-hour. Corruption that nobody "
        f"sees makes {fewest:,g} to {most:,g} steps worthless (arXiv 2604.00726)."
    )


def _detector(found: MeasuredWarnings) -> str:
    warnings = found.warnings
    if warnings is None:
        return f"No warnings: {found.reason}."
    seen = ", ".join(_seen(kind, warnings) for kind in STANDS_FOR)
    fitted = "one false alarm in 10,000 healthy steps on the fit half"
    threshold = "the threshold of its settings" if found.of_settings else fitted
    return (
        f"Detector: {ROBUST} on the score half of real runs, strict, at {threshold}: "
        f"{warnings.false_alarms_per_step * 1e4:.2g} false alarms in 10,000 healthy steps on the score half; warned of "
        f"failed runs: {seen}; all other components never. Steps of lead are taken as measured on tiny models, and all "
        "failures of a component as ailing first like the injected fault: what a warning saves is an upper end."
    )


def _seen(kind: str, warnings: Warnings) -> str:
    steps = warnings.seen_steps.get(kind, np.empty(0))
    warned = steps[~np.isnan(steps)]
    what = "delay" if kind == CORRUPTION else "lead"
    median = f", median {what} {np.median(warned):g} steps" if len(warned) else ""
    return f"{kind} {len(warned)} of {len(steps)}{median} ({counted(kind)} interruptions)"


def _repair(repair: RepairEffect) -> str:
    whence = {True: "measured in the corruption campaign", False: "assumed"}
    cost = whence[True] if repair.overhead_measured else "arXiv 2604.00726"
    return (
        f"Repaired: {100 * repair.share:.4g} % of the corruption ({whence[repair.share_measured]}), at "
        f"{repair.overhead_pct:.3g} % of the compute ({cost})."
    )


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One assumption changed."""

    job: Job
    found: MeasuredWarnings
    repair: RepairEffect


def variants(found: MeasuredWarnings, repair: RepairEffect, job: Job) -> dict[str, Variant]:
    """Name of the changed assumption → model with that change, the rest as it was."""
    base = Variant(job=job, found=found, repair=repair)

    def with_job(**changes: float | tuple[float, float]) -> Variant:
        return replace(base, job=replace(job, **changes))  # type: ignore[arg-type]

    changed = {
        "nothing (Table 17)": base,
        "a checkpoint is written in 60 s": with_job(write_s=60.0),
        "a checkpoint is written in 300 s": with_job(write_s=300.0),
        "a restart takes 120 s": with_job(restart_s=120.0),
        "corruption is noticed at once by all": with_job(vain_steps=(0.0, 0.0)),
        "half of the corruption's damage": with_job(vain_steps=(job.vain_steps[0] / 2, job.vain_steps[1] / 2)),
        "Young's interval": with_job(interval_s=young(job.write_s, 3600.0 * job.mtbf_h)),
        "the repair's watch costs nothing": replace(base, repair=replace(repair, overhead_pct=0.0)),
    }
    if found.warnings is None:
        return changed
    for share, said in ((0.5, "half of the failing components ail first"), (0.0, "only corruption can be seen")):
        changed[said] = replace(base, found=MeasuredWarnings(replace(found.warnings, symptoms=share)))
    rates = job.rates_per_h
    warned = sum(rates[kind] * found.warnings.recall(kind) for kind in rates if kind != CORRUPTION)
    longer = 3600.0 * job.interval_h / math.sqrt(1.0 - warned * job.mtbf_h)
    changed["interval for the failures not warned"] = with_job(interval_s=longer)
    return changed


@table(
    "table_17b_overhead_assumptions",
    "Training Overhead Ratio, what the assumptions are worth",
    f"What the assumptions of Table 17 are worth, on {LARGEST:,} GPUs: one changed at a time. Gains in percentage "
    "points, in pairs, on the same row's interval. The last row's is the base one over √(1 − share of the "
    "interruptions that are warned and leave the model whole) (Aupy, Robert, Vivien, Zaidouni, arXiv 1207.6936).",
    [
        Column("changed", "Changed"),
        Column("interval_min", "Between checkpoints (min)", 1),
        *(Column(f"tor_{name}", f"TOR, {name}", 4) for name in POLICIES),
        Column("by_warnings", "Gained by warnings (points)", 2),
        Column("by_repair", "Gained by repair on top (points)", 2),
    ],
    needs=_inquiries,
    about=("changed",),
)
def assumptions(source: Inquiry) -> Part:
    """One row an assumption that is changed."""
    changed = variants(source.found, source.repair, Job(gpus=LARGEST))
    return Part([{"changed": name, **_cells(variant, source.seed)} for name, variant in changed.items()])


def _cells(variant: Variant, seed: int) -> Mapping[str, Cell]:
    known = outcomes(variant.job, policies(variant.job, variant.found, variant.repair)[:3], seed=seed)
    return {
        "interval_min": 60.0 * variant.job.interval_h,
        **{f"tor_{name}": known[name].tor for name in POLICIES},
        "by_warnings": known[WITH_WARNINGS].gained_points(known[CHECKPOINTS]),
        "by_repair": known[WITH_REPAIR].gained_points(known[WITH_WARNINGS]),
    }
