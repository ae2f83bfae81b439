"""Simulate many replicates of a job at once, from failure to failure; outcomes of policies with intervals over them.

Failures are a Poisson process. Between two of them all is known beforehand (so much work, a checkpoint, so much work
…), so one pass of the loop takes every replicate to its next failure, and no step of training is ever simulated.

* A failure throws the job back to its last checkpoint and restarts it; it may strike during a restart as well.
* A warning that comes early enough has a checkpoint written at once, after which training and its checkpoints go on
  until the failure.
* A silent corruption is noticed after so many steps: those steps, and all since the last checkpoint before it, are done
  again. Work done in vain is work, with checkpoints and failures of its own.
* A repaired corruption costs one step.
* False alarms (a checkpoint each) and the watch of the repair slow the work by their expected share: what chance adds
  to the number of the former, in weeks and at seconds each, is a few thousandths of a per cent of the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmetric.errors import UserError
from rmetric.evaluation.scores import Score, percentile_interval
from rmetric.streams import RunStreams
from studies.cluster.job import CLASSES, CORRUPTION, Job
from studies.cluster.policies import DrawnWarnings, JobPolicy, expected_tor

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
HOPELESS_TOR = 0.05
"""Training Overhead Ratio below which a job hardly gets on, and would take for ever to simulate."""
REPLICATES = 1000
HOURS_A_DAY = 24.0
_STREAMS = ("gap", "component", "run", "symptoms", "repair", "vain")


@dataclass(frozen=True)
class Failure:
    """The next failure of every replicate, arrays of shape (replicates,)."""

    gap_h: Floats
    """Hours since the failure before."""
    corruption: Bools
    seen_h: Floats
    """Lead, or of a corruption delay, of the warning; NaN without one."""
    repaired: Bools
    vain_h: Floats
    """Hours of work that a corruption makes worthless beyond the last checkpoint; 0 of others."""


def observed_hours(job: Job, policy: JobPolicy, *, replicates: int = REPLICATES, seed: int = 0) -> Floats:
    """T_observed of each replicate, hours, shape (replicates,).

    The k-th failure of a replicate is drawn from streams that know of no policy and no size: policies and sizes share
    their luck, and differences between them are paired.

    Raises
    ------
    UserError
        If failures come so fast that the job would hardly get on.
    """
    if expected_tor(job, policy) < HOPELESS_TOR:
        raise UserError(
            f"a job on {job.gpus:,} GPUs with an interruption every {60 * job.mtbf_h:.3g} minutes hardly gets on; "
            "take fewer GPUs, or a shorter restart or write of checkpoints"
        )
    streams = RunStreams((seed,), replicates).within("cluster")
    drawn = policy.warnings.drawn(streams, replicates) if policy.warnings else None
    cycle = WorkCycle.of(job, policy, drawn, replicates)
    left, observed = np.full(replicates, job.useful_h), np.zeros(replicates)
    since, waits = np.zeros(replicates), np.zeros(replicates)
    going = np.ones(replicates, dtype=bool)
    for failure in _failures(job, policy, drawn, streams, replicates):
        since += failure.gap_h
        needed = cycle.time_for(left)
        trained = np.clip(since - waits, 0.0, needed)
        ends = going & (trained == needed)
        observed += np.where(ends, waits + needed, 0.0)
        going &= ~ends
        if not going.any():
            return observed
        observed += np.where(going & failure.repaired, job.step_h, 0.0)
        stops = going & ~failure.repaired
        lead_h = np.where(failure.corruption, np.nan, failure.seen_h)
        left += np.where(stops, failure.vain_h - cycle.kept(trained, lead_h), 0.0)
        observed += np.where(stops, since, 0.0)
        since = np.where(stops, 0.0, since)
        waits = np.where(stops, job.restart_h, waits)
    raise AssertionError("failures never end")


@dataclass(frozen=True)
class WorkCycle:
    """Work and checkpoints by turns, between two failures."""

    interval_h: float
    """Hours of work between two checkpoints."""
    write_h: float
    slowdown: Floats
    """Hours that an hour of work takes, at least 1; shape (replicates,)."""

    @classmethod
    def of(cls, job: Job, policy: JobPolicy, drawn: DrawnWarnings | None, replicates: int) -> WorkCycle:
        """The cycle of a policy: false alarms and the watch of the repair slow the work."""
        slowdown = np.ones(replicates)
        if drawn is not None:
            slowdown += drawn.false_alarms_per_step * job.write_s / job.step_time_s
        if policy.repair is not None:
            slowdown += policy.repair.overhead_pct / 100.0
        return cls(job.interval_h, job.write_h, slowdown)

    def time_for(self, work_h: Floats) -> Floats:
        """Hours that this work takes without a failure; the end of the job needs no checkpoint of this kind."""
        writes = np.maximum(np.ceil(work_h / self.interval_h) - 1.0, 0.0)
        return work_h * self.slowdown + writes * self.write_h

    def kept(self, trained_h: Floats, lead_h: Floats) -> Floats:
        """Hours of work in the last checkpoint after so many hours, given a warning so long before their end (or NaN).

        A checkpoint that is being written when the warning comes is the one that is needed.
        """
        cycle = self.interval_h * self.slowdown + self.write_h
        plain = np.floor(trained_h / cycle) * self.interval_h
        warned_at = np.maximum(trained_h - np.nan_to_num(lead_h), 0.0)
        whole = np.floor(warned_at / cycle)
        within = warned_at - whole * cycle
        worked = np.minimum(within, self.interval_h * self.slowdown)
        writes = np.minimum(self.write_h, cycle - within)
        after = trained_h - warned_at - writes
        saved = whole * self.interval_h + worked / self.slowdown + np.floor(after / cycle) * self.interval_h
        return np.where(~np.isnan(lead_h) & (after >= 0.0), saved, plain)


def _failures(
    job: Job, policy: JobPolicy, drawn: DrawnWarnings | None, streams: RunStreams, replicates: int
) -> Iterator[Failure]:
    """One failure of every replicate after the other, for ever."""
    draws = {name: streams.generators(name)[0] for name in _STREAMS}
    rates = np.array([job.rates_per_h[kind] for kind in CLASSES])
    total = max(float(rates.sum()), np.finfo(float).tiny)
    until = np.cumsum(rates)[:-1] / total
    fewest, most = job.vain_steps
    mean_gap_h = min(job.mtbf_h, np.finfo(float).max / 1e3)
    while True:
        gap = draws["gap"].standard_exponential(replicates) * mean_gap_h
        uniform = {name: draws[name].random(replicates) for name in _STREAMS[1:]}
        kind = np.searchsorted(until, uniform["component"], side="right")
        corruption = kind == list(CLASSES).index(CORRUPTION)
        seen = _seen_steps(drawn, kind, uniform["run"])
        if policy.warnings is not None:
            seen = np.where(corruption | (uniform["symptoms"] < policy.warnings.symptoms), seen, np.nan)
        vain = np.where(np.isnan(seen), fewest + (most - fewest) * uniform["vain"], seen)
        share = policy.repair.share if policy.repair else 0.0
        yield Failure(
            gap,
            corruption,
            seen * job.step_h,
            corruption & (uniform["repair"] < share),
            np.where(corruption, vain, 0.0) * job.step_h,
        )


def _seen_steps(drawn: DrawnWarnings | None, kind: NDArray[np.int64], uniform: Floats) -> Floats:
    """Steps from :attr:`Warnings.seen_steps` of the run that each failure is like; NaN without a warning."""
    seen = np.full(len(kind), np.nan)
    if drawn is None:
        return seen
    rows = np.arange(len(kind))
    for place, name in enumerate(CLASSES):
        known = drawn.seen_steps.get(name)
        if known is not None:
            like = (uniform * known.shape[1]).astype(np.int64)
            seen = np.where(kind == place, known[rows, like], seen)
    return seen


@dataclass(frozen=True)
class JobOutcome:
    """Outcome of a policy on a job."""

    job: Job
    policy: JobPolicy
    tors: NDArray[np.float64]
    """T_optimal / T_observed of each replicate, in (0, 1], shape (replicates,); empty if the policy is undefined.

    **Source:** Lu et al. 2024, arXiv 2408.07482.
    """

    @property
    def tor(self) -> Score:
        """Mean, and what 95 % of the replicates lie in."""
        return self._over_replicates(self.tors)

    @property
    def lost_gpu_hours_a_day(self) -> Score:
        """GPU-hours of a day that bring the training no further."""
        return self._over_replicates((1.0 - self.tors) * HOURS_A_DAY * self.job.gpus)

    @property
    def lost_usd_a_day(self) -> Score:
        """Cost of them."""
        return self._over_replicates((1.0 - self.tors) * HOURS_A_DAY * self.job.gpus * self.job.usd_per_gpu_hour)

    def gained_points(self, other: JobOutcome) -> Score:
        """TOR beyond that of another policy on the same failures, percentage points, in pairs."""
        if not len(other.tors):
            return Score.undefined(other.policy.undefined)
        return self._over_replicates(100.0 * (self.tors - other.tors) if len(self.tors) else self.tors)

    def _over_replicates(self, values_R: NDArray[np.float64]) -> Score:
        if not len(values_R):
            return Score.undefined(self.policy.undefined)
        return Score(float(values_R.mean()), *percentile_interval(values_R))


def outcomes(
    job: Job, policies: Sequence[JobPolicy], *, replicates: int = REPLICATES, seed: int = 0
) -> dict[str, JobOutcome]:
    """Name of the policy → its outcome, all on the same failures."""
    found = {}
    for policy in policies:
        if policy.undefined:
            tors = np.empty(0)
        else:
            tors = job.useful_h / observed_hours(job, policy, replicates=replicates, seed=seed)
        found[policy.name] = JobOutcome(job, policy, tors)
    return found
