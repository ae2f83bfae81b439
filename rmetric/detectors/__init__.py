"""Detectors: one file each, one contract, found by name in :data:`DETECTORS`.

Two need an optional package and are known only where it is installed: ``ecod`` (pyod), ``lstm_forecaster`` (torch).
"""

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
from rmetric.detectors.change_points import Adwin, MadCusum, PageHinkleyTest
from rmetric.detectors.isolation_forest import CausalIsolationForest, WholeRunIsolationForest
from rmetric.detectors.lstm_forecaster import LstmForecaster
from rmetric.detectors.mechanism import (
    Alarming,
    Alignment,
    AttentionEntropy,
    OwnPastDetector,
    QkEntropy,
    QkSpectralNorm,
    QueryKeyNorms,
    RouterCollapse,
    UpdateMax,
    Usual,
)
from rmetric.detectors.novelty import Ecod, HalfSpaceTreesDetector, OneClassSvm
from rmetric.detectors.numerics import Numerics
from rmetric.detectors.paper_baselines import (
    DeltaLOnly,
    GradientNorm,
    LambdaOnly,
    LossSpike,
    SigmaSqOnly,
    ValidationSlope,
)
from rmetric.detectors.r_metric import RMetricDetector, RobustRMetricDetector
from rmetric.detectors.robust_z import RobustZ
from rmetric.detectors.spike_rules import LightningSpike, OlmoSpike, UpdateRmsThreshold, ZClip

load_detector_entry_points()

__all__ = [
    "DETECTORS",
    "Adwin",
    "Alarming",
    "Alignment",
    "AttentionEntropy",
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
    "OwnPastDetector",
    "PageHinkleyTest",
    "QkEntropy",
    "QkSpectralNorm",
    "QueryKeyNorms",
    "RMetricDetector",
    "RobustRMetricDetector",
    "RobustZ",
    "RouterCollapse",
    "SigmaSqOnly",
    "StreamingDetector",
    "UpdateMax",
    "UpdateRmsThreshold",
    "Usual",
    "ValidationSlope",
    "WholeRunIsolationForest",
    "ZClip",
    "first_alert",
    "load_detector_entry_points",
    "make_detector",
    "online_detectors",
    "register_detector",
]
