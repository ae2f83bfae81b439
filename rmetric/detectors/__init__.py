"""Detectors: one file each, one contract, found by name in :data:`DETECTORS`."""

from rmetric.detectors.base import (
    DETECTORS,
    Detector,
    StreamingDetector,
    first_alert,
    load_detector_entry_points,
    make_detector,
    online_detectors,
    register_detector,
)
from rmetric.detectors.gradient_norm import GradientNorm
from rmetric.detectors.isolation_forest import CausalIsolationForest, WholeRunIsolationForest
from rmetric.detectors.loss_spike import LossSpike
from rmetric.detectors.numerics import Numerics
from rmetric.detectors.r_metric import RMetricDetector
from rmetric.detectors.robust_z import RobustZ
from rmetric.detectors.single_signal import DeltaLOnly, LambdaOnly, SigmaSqOnly
from rmetric.detectors.validation_slope import ValidationSlope

load_detector_entry_points()

__all__ = [
    "DETECTORS",
    "CausalIsolationForest",
    "DeltaLOnly",
    "Detector",
    "GradientNorm",
    "LambdaOnly",
    "LossSpike",
    "Numerics",
    "RMetricDetector",
    "RobustZ",
    "SigmaSqOnly",
    "StreamingDetector",
    "ValidationSlope",
    "WholeRunIsolationForest",
    "first_alert",
    "load_detector_entry_points",
    "make_detector",
    "online_detectors",
    "register_detector",
]
