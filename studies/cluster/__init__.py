"""Cost of interruptions to a large training job, and what warnings and repair save: Training Overhead Ratio, simulated.

:mod:`.job` has the failing components, the checkpoint interval and the job; :mod:`.policies` what a detector sees of
failures, what repair undoes, and first-order formulas; :mod:`.monte_carlo` the simulation, which must agree with them.
"""

from studies.cluster.job import Job
from studies.cluster.monte_carlo import JobOutcome, observed_hours, outcomes
from studies.cluster.policies import (
    JobPolicy,
    MeasuredWarnings,
    RepairEffect,
    Warnings,
    measured_warnings,
    policies,
)

__all__ = [
    "Job",
    "JobOutcome",
    "JobPolicy",
    "MeasuredWarnings",
    "RepairEffect",
    "Warnings",
    "measured_warnings",
    "observed_hours",
    "outcomes",
    "policies",
]
