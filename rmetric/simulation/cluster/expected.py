"""What the simulation must agree with: a first-order formula for every policy, the exact one for checkpoints alone."""

from __future__ import annotations

import math

import numpy as np

from rmetric.simulation.cluster.components import CORRUPTION
from rmetric.simulation.cluster.job import Job
from rmetric.simulation.cluster.policy import Policy


def expected_tor(job: Job, policy: Policy) -> float:
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


def checkpoint_only_h(job: Job) -> float:
    """Mean T_observed, exactly, where every failure only throws back to the last checkpoint (``vain_steps`` 0).

    .. math:: M e^{R / M} (e^{(\\tau + c) / M} - 1) T / \\tau

    with M the mean time between failures, R the restart, T the useful hours; of a job of whole intervals, the last of
    which ends in a checkpoint as well.

    **Source:** Daly 2006, the exact form for failures that only throw back.
    """
    mtbf = job.mtbf_h
    growth = math.expm1((job.interval_h + job.write_h) / mtbf)
    return mtbf * math.exp(job.restart_h / mtbf) * growth * job.useful_h / job.interval_h


def _lost_h(job: Job, policy: Policy, kind: str, drag: float) -> float:
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
