"""What interruptions cost a large training job, and what warnings and repair save: Training Overhead Ratio, simulated.

One concept a file: which components fail (:mod:`.components`), when to write a checkpoint (:mod:`.interval`), the job
(:mod:`.job`), what a detector sees of it (:mod:`.warnings`), policies (:mod:`.policy`), the simulation
(:mod:`.monte_carlo`), the formula that it must agree with (:mod:`.expected`), and outcomes with intervals
(:mod:`.outcome`).
"""

from rmetric.simulation.cluster.job import Job
from rmetric.simulation.cluster.monte_carlo import observed_hours
from rmetric.simulation.cluster.outcome import Outcome, outcomes
from rmetric.simulation.cluster.policy import Policy, Repair, policies
from rmetric.simulation.cluster.warnings import Measured, Warnings, measured

__all__ = ["Job", "Measured", "Outcome", "Policy", "Repair", "Warnings", "measured", "observed_hours", "outcomes",
           "policies"]  # fmt: skip
