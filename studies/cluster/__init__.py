"""What interruptions cost a large training job, and what warnings and repair save: Training Overhead Ratio, simulated.

One concept a file: which components fail (:mod:`.components`), when to write a checkpoint (:mod:`.interval`), the job
(:mod:`.job`), what a detector sees of it (:mod:`.warnings`), policies (:mod:`.policy`), the simulation
(:mod:`.monte_carlo`), the formula that it must agree with (:mod:`.expected`), and outcomes with intervals
(:mod:`.outcome`).
"""

from studies.cluster.job import Job
from studies.cluster.monte_carlo import Outcome, observed_hours, outcomes
from studies.cluster.policies import Measured, Policy, Repair, Warnings, measured, policies

__all__ = ["Job", "Measured", "Outcome", "Policy", "Repair", "Warnings", "measured", "observed_hours", "outcomes",
           "policies"]  # fmt: skip
