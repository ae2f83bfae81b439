from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from rmetric.detectors import RMetricDetector, first_alert
from rmetric.log_reader import read_run
from rmetric.measurements import MEASUREMENTS, Observation
from rmetric.metric import RMetric
from rmetric.records import Observations
from tests.helpers import bits, healthy_observations


def test_the_published_settings() -> None:
    detector = RMetricDetector()
    assert (detector.threshold, tuple(detector.weights), detector.window) == (0.57, (0.10, 0.45, 0.70), 1000)
    assert detector.reads == ("lambda", "sigma_sq", "delta_l")


def test_the_score_is_the_metrics_r() -> None:
    observations = healthy_observations()
    metric = RMetric.paper()
    expected = metric.extend(observations["lambda"], observations["sigma_sq"], observations["delta_l"])
    assert bits(RMetricDetector().score_run(observations)) == bits(expected.r)
    explained = RMetricDetector().extend_explained(observations)
    for got, due in zip(explained, expected, strict=True):
        assert bits(got) == bits(due)


def test_weights_and_window_reach_the_metric() -> None:
    detector = RMetricDetector(weights=(0.0, 1.0, 0.0), window=2)
    scores = [
        detector.update(Observation(step, sigma_sq=value)) for step, value in ((1, 1.0), (2, 3.0), (3, 2.0), (4, 2.5))
    ]
    assert scores == [0.0, 1.0, 0.0, 1.0]


def test_a_drift_of_the_validation_loss_alone_can_alert_and_variance_alone_cannot() -> None:
    quiet = np.zeros(10)
    jump = np.where(np.arange(10) == 7, 1.0, 0.0)
    for column, alert in (("delta_l", 8), ("sigma_sq", None), ("lambda", None)):
        columns = dict.fromkeys(("lambda", "sigma_sq", "delta_l"), quiet) | {column: jump}
        detector = RMetricDetector()
        observations = Observations(np.arange(1, 11), columns)
        assert first_alert(observations.step, detector.score_run(observations), detector.threshold) == alert


def test_a_non_finite_drift_alone_alerts() -> None:
    columns = {name: np.zeros(5) for name in ("lambda", "sigma_sq")} | {
        "delta_l": np.array([0.0, 0.0, math.inf, 0.0, 0.0])
    }
    detector = RMetricDetector()
    observations = Observations(np.arange(1, 6), columns)
    assert first_alert(observations.step, detector.score_run(observations), detector.threshold) == 3


def test_negative_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        RMetricDetector(weights=(-1.0, 1.0, 1.0))


def test_it_scores_real_logs_within_its_bounds(real_logs: list[Path]) -> None:
    assert real_logs
    for path in real_logs:
        observations = read_run(path).observations
        assert set(observations.columns) <= set(MEASUREMENTS)
        scores = RMetricDetector().score_run(observations)
        assert ((scores >= 0.0) & (scores <= 1.25)).all()
        assert scores.max() > 0.0
