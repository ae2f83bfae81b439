"""Detectors: one file each, one contract, found by name in :data:`DETECTORS`.

Two need an optional package and are known only where it is installed: ``ecod`` (pyod), ``lstm_forecaster`` (torch).
"""

from rmetric.detectors.adwin import Adwin
from rmetric.detectors.alignment import Alignment
from rmetric.detectors.attention_entropy import AttentionEntropy
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
from rmetric.detectors.own_past import Alarming, OwnPastDetector, Usual
from rmetric.detectors.page_hinkley import PageHinkleyTest
from rmetric.detectors.qk_entropy import QkEntropy
from rmetric.detectors.qk_spectral_norm import QkSpectralNorm
from rmetric.detectors.query_key_norms import QueryKeyNorms
from rmetric.detectors.r_metric import RMetricDetector
from rmetric.detectors.r_metric_robust import RobustRMetricDetector
from rmetric.detectors.robust_z import RobustZ
from rmetric.detectors.router_collapse import RouterCollapse
from rmetric.detectors.single_signal import DeltaLOnly, LambdaOnly, SigmaSqOnly
from rmetric.detectors.update_max import UpdateMax
from rmetric.detectors.update_rms_threshold import UpdateRmsThreshold
from rmetric.detectors.validation_slope import ValidationSlope
from rmetric.detectors.zclip import ZClip

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
