"""Simulated training: healthy processes, hardware hazards, faults, and the logs that come of them."""

from rmetric.simulation.healthy import HealthyParameters
from rmetric.simulation.logbook import RunLog, write_logs
from rmetric.simulation.parameters import SimulationParameters
from rmetric.simulation.simulator import Traces, TrainingSimulator
from rmetric.simulation.spec import MAX_STEPS, SIMULATION_VERSION, RunSpec

__all__ = [
    "MAX_STEPS",
    "SIMULATION_VERSION",
    "HealthyParameters",
    "RunLog",
    "RunSpec",
    "SimulationParameters",
    "Traces",
    "TrainingSimulator",
    "write_logs",
]
