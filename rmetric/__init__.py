"""Reliability metric for language-model training: simulate, watch, score, explain.

The names below are resolved on first use, so ``import rmetric`` costs milliseconds and never pulls in a plotting
library, scikit-learn or torch.
"""

from __future__ import annotations

from rmetric.lazy import names_of

__version__ = "0.1.0"

_HOME_OF = {
    "RMetric": "rmetric.metric",
    "Observation": "rmetric.records",
    "Observations": "rmetric.records",
    "Run": "rmetric.records",
    "read_run": "rmetric.records",
    "Fault": "rmetric.faults",
    "register_fault": "rmetric.faults",
    "Detector": "rmetric.detectors",
    "StreamingDetector": "rmetric.detectors",
    "register_detector": "rmetric.detectors",
    "TrainingSimulator": "rmetric.simulation",
    "TrainingMonitor": "rmetric.training",
    "Alert": "rmetric.training",
    "RecomputeStep": "rmetric.training.policies",
    "RestoreState": "rmetric.training.policies",
}

__all__ = ["__version__", *_HOME_OF]

__getattr__ = names_of(__name__, _HOME_OF)


def __dir__() -> list[str]:
    return sorted(__all__)
