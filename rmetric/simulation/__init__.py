"""Simulated training: healthy processes, hardware hazards, faults, and the logs that come of them."""

from rmetric.simulation.healthy import HealthyParameters
from rmetric.simulation.logbook import RunLog, write_logs
from rmetric.simulation.simulator import Traces, TrainingSimulator
from rmetric.simulation.spec import RunSpec

__all__ = ["HealthyParameters", "RunLog", "RunSpec", "Traces", "TrainingSimulator", "write_logs"]
