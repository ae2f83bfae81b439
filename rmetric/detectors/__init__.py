"""Detectors: one contract, found by name in :data:`DETECTORS`, grouped in files by kind.

The built-in ones are in alphabetical order, which is that of the tables; those of plug-ins follow as they are loaded.
Two need an optional package and are known only where it is installed: ``ecod`` (pyod), ``lstm_forecaster`` (torch);
studies score them where they are asked for by name.
"""

from rmetric.detectors.base import (
    DEFAULT_DETECTORS,
    DETECTORS,
    ROBUST,
    Detector,
    OneMeasurementDetector,
    StreamingDetector,
    checked_score,
    default_detectors,
    detectors_everywhere,
    first_alert,
    load_detector_entry_points,
    make_detector,
    online_detectors,
    register_detector,
)
from rmetric.detectors.change_points import Adwin, MadCusum, PageHinkleyTest
from rmetric.detectors.lstm_forecaster import LstmForecaster
from rmetric.detectors.mechanism import (
    Alignment,
    AttentionEntropy,
    DeviationRule,
    Direction,
    OwnPastDetector,
    QkEntropy,
    QkSpectralNorm,
    QueryKeyNorms,
    RouterCollapse,
    UpdateMax,
)
from rmetric.detectors.novelty import (
    CausalIsolationForest,
    Ecod,
    HalfSpaceTreesDetector,
    OneClassSvm,
    WholeRunIsolationForest,
)
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
from rmetric.detectors.spike_rules import LightningSpike, OlmoSpike, RobustZ, UpdateRmsThreshold, ZClip

DETECTORS.sort(key=lambda name, detector: detector.group or name)
load_detector_entry_points()

__all__ = [
    "DEFAULT_DETECTORS",
    "DETECTORS",
    "ROBUST",
    "Adwin",
    "Alignment",
    "AttentionEntropy",
    "CausalIsolationForest",
    "DeltaLOnly",
    "Detector",
    "DeviationRule",
    "Direction",
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
    "ValidationSlope",
    "WholeRunIsolationForest",
    "ZClip",
    "checked_score",
    "default_detectors",
    "detectors_everywhere",
    "first_alert",
    "load_detector_entry_points",
    "make_detector",
    "online_detectors",
    "register_detector",
]
