"""The monitor: measure a live run, score it, warn, log."""

from rmetric.training.monitor.alerts import Alert
from rmetric.training.monitor.monitor import DEFAULT_DETECTORS, TrainingMonitor

__all__ = ["DEFAULT_DETECTORS", "Alert", "TrainingMonitor"]
