"""Detectors: one file each, one contract, found by name in :data:`DETECTORS`.

Two need an optional package and are known only where it is installed: ``ecod`` (pyod), ``lstm_forecaster`` (torch).
"""

from rmetric.detectors.adwin import Adwin
from rmetric.detectors.base import (
    DETECTORS,
    Detector,
    OneMeasurementDetector,
    StreamingDetector,
    first_alert,
    load_detector_entry_points,
    make_detector,
    online_detectors,
    register_detector,
)
from rmetric.detectors.ecod import Ecod
from rmetric.detectors.gradient_norm import GradientNorm
from rmetric.detectors.half_space_trees import HalfSpaceTreesDetector
from rmetric.detectors.isolation_forest import CausalIsolationForest, WholeRunIsolationForest
from rmetric.detectors.lightning_spike import LightningSpike
from rmetric.detectors.loss_spike import LossSpike
from rmetric.detectors.lstm_forecaster import LstmForecaster
from rmetric.detectors.mad_cusum import MadCusum
from rmetric.detectors.numerics import Numerics
from rmetric.detectors.olmo_spike import OlmoSpike
from rmetric.detectors.one_class_svm import OneClassSvm
from rmetric.detectors.page_hinkley import PageHinkleyTest
from rmetric.detectors.r_metric import RMetricDetector
from rmetric.detectors.r_metric_robust import RobustRMetricDetector
from rmetric.detectors.robust_z import RobustZ
from rmetric.detectors.single_signal import DeltaLOnly, LambdaOnly, SigmaSqOnly
from rmetric.detectors.update_rms_threshold import UpdateRmsThreshold
from rmetric.detectors.validation_slope import ValidationSlope
from rmetric.detectors.zclip import ZClip

load_detector_entry_points()

__all__ = [
    "DETECTORS",
    "Adwin",
    "CausalIsolationForest",
    "DeltaLOnly",
    "Detector",
    "Ecod",
    "GradientNorm",
    "HalfSpaceTreesDetector",
    "LambdaOnly",
    "LightningSpike",
    "LossSpike",
    "LstmForecaster",
    "MadCusum",
    "Numerics",
    "OlmoSpike",
    "OneClassSvm",
    "OneMeasurementDetector",
    "PageHinkleyTest",
    "RMetricDetector",
    "RobustRMetricDetector",
    "RobustZ",
    "SigmaSqOnly",
    "StreamingDetector",
    "UpdateRmsThreshold",
    "ValidationSlope",
    "WholeRunIsolationForest",
    "ZClip",
    "first_alert",
    "load_detector_entry_points",
    "make_detector",
    "online_detectors",
    "register_detector",
]
