"""The monitor: measure a live run, score it, warn, log."""

from rmetric.monitor.alerts import Alert
from rmetric.monitor.monitor import DEFAULT_DETECTORS, TrainingMonitor

__all__ = ["DEFAULT_DETECTORS", "Alert", "TrainingMonitor"]
