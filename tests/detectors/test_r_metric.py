from __future__ import annotations

import math
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from rmetric.detectors import DeltaLOnly, RMetricDetector, first_alert
from rmetric.detectors.drift import Drift, with_drift
from rmetric.log_reader import read_log
from rmetric.measurements import MEASUREMENTS, Observation
from rmetric.metric import RMetric
from rmetric.records import Observations
from tests.helpers import any_observations, bits, healthy_observations


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


def _without_delta_l() -> Observations:
    losses = [3.0, 3.0, 2.5, 2.5, 2.7, 2.7]
    return Observations(np.arange(1, len(losses) + 1), {"validation_loss": np.array(losses)})


def test_a_log_without_delta_l_gets_it_from_its_validation_losses() -> None:
    observations = _without_delta_l()
    detector = RMetricDetector()
    scores = detector.score_run(observations)
    assert bits(scores) == bits([math.nan, math.nan, 0.0, 0.0, 0.7, 0.7])
    assert bits(scores) == bits(detector.score_run(with_drift(observations)))
    streaming = RMetricDetector()
    assert bits(scores) == bits([streaming.update(observation) for observation in observations])
    assert detector.lack(observations) == "uses only delta_l; the log lacks lambda, sigma_sq"
    assert detector.missing(observations) == ("lambda", "sigma_sq")
    assert bits(DeltaLOnly().score_run(observations)) == bits(scores / 0.7)


def test_delta_l_is_as_stated_from_the_first_record_that_states_it() -> None:
    observations = _without_delta_l()
    stated = np.array([math.nan, math.nan, math.nan, 5.0, math.nan, 7.0])
    log = Observations(observations.step, {**observations.columns, "delta_l": stated})
    assert bits(Drift().extend(log)) == bits([math.nan, math.nan, -0.5, 5.0, math.nan, 7.0])


@given(any_observations(("delta_l", "validation_loss", "step_time_s")), st.integers(0, 40))
def test_delta_l_streams_to_the_same_bits(observations: Observations, cut: int) -> None:
    one_by_one, mixed = Drift(), Drift()
    expected = bits(Drift().extend(observations))
    assert bits([one_by_one.update(row) for row in observations]) == expected
    head = mixed.extend(observations.rows(slice(0, cut)))
    tail = [mixed.update(row) for row in observations.rows(slice(cut, None))]
    assert bits([*head, *tail]) == expected


def test_it_scores_real_logs_within_its_bounds(real_logs: list[Path]) -> None:
    assert real_logs
    for path in real_logs:
        observations = read_log(path).observations
        assert set(observations.columns) <= set(MEASUREMENTS)
        scores = RMetricDetector().score_run(observations)
        assert ((scores >= 0.0) & (scores <= 1.25)).all()
        assert scores.max() > 0.0
