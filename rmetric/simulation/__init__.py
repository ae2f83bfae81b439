"""Simulated training: healthy processes, hardware hazards, faults, and the logs of the runs.

From a specification to a log: :mod:`~rmetric.simulation.simulator` (steps), :mod:`~rmetric.simulation.summary`
(records), :mod:`~rmetric.simulation.logbook` (detectors, lines).
"""

from rmetric.simulation.conditions import Conditions
from rmetric.simulation.healthy import HealthyParameters
from rmetric.simulation.logbook import RunLog, judge_traces, run_batch, write_logs
from rmetric.simulation.parameters import SimulationParameters
from rmetric.simulation.simulator import Traces, TrainingSimulator
from rmetric.simulation.spec import MAX_STEPS, SIMULATION_VERSION, RunSpec

__all__ = [
    "MAX_STEPS",
    "SIMULATION_VERSION",
    "Conditions",
    "HealthyParameters",
    "RunLog",
    "RunSpec",
    "SimulationParameters",
    "Traces",
    "TrainingSimulator",
    "judge_traces",
    "run_batch",
    "write_logs",
]
