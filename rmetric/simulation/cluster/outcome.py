"""Outcomes of policies, with intervals over replicates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmetric.evaluation.intervals import percentile_interval
from rmetric.evaluation.scores import Score
from rmetric.simulation.cluster.job import Job
from rmetric.simulation.cluster.monte_carlo import observed_hours
from rmetric.simulation.cluster.policy import Policy

REPLICATES = 1000
HOURS_A_DAY = 24.0


@dataclass(frozen=True)
class Outcome:
    """A policy on a job."""

    job: Job
    policy: Policy
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
        """What they cost."""
        return self._over_replicates((1.0 - self.tors) * HOURS_A_DAY * self.job.gpus * self.job.usd_per_gpu_hour)

    def gained_points(self, other: Outcome) -> Score:
        """TOR beyond that of another policy on the same failures, percentage points, in pairs."""
        if not len(other.tors):
            return Score.undefined(other.policy.undefined)
        return self._over_replicates(100.0 * (self.tors - other.tors) if len(self.tors) else self.tors)

    def _over_replicates(self, values_R: NDArray[np.float64]) -> Score:
        if not len(values_R):
            return Score.undefined(self.policy.undefined)
        return Score(float(values_R.mean()), *percentile_interval(values_R))


def outcomes(
    job: Job, policies: Sequence[Policy], *, replicates: int = REPLICATES, seed: int = 0
) -> dict[str, Outcome]:
    """Policy's name → its outcome, all on the same failures."""
    found = {}
    for policy in policies:
        if policy.undefined:
            tors = np.empty(0)
        else:
            tors = job.useful_h / observed_hours(job, policy, replicates=replicates, seed=seed)
        found[policy.name] = Outcome(job, policy, tors)
    return found
