"""Features: streaming is batch, the future is not seen, everything is bounded, what is not measured is neutral."""

import math

import numpy as np
import pytest
from hypothesis import given, settings

from rmetric.measurements import Observation
from rmetric.records import Observations
from rmetric.risk.features import FEATURES, LARGEST_EXCESS, MEMORY, READS, SATURATED, FeatureStream, features_of
from rmetric.state import restore, state_of
from tests.helpers import any_observations, healthy_observations
from tests.risk.helpers import bits


def column(observations: Observations, name: str) -> np.ndarray:
    return features_of(observations)[:, FEATURES.index(name)]


def with_values(name: str, values: dict[int, float], length: int = 120) -> Observations:
    healthy = healthy_observations(length)
    changed = healthy[name].copy()
    for index, value in values.items():
        changed[index] = value
    return Observations(healthy.step, {**healthy.columns, name: changed})


@settings(max_examples=40)
@given(any_observations(READS))
def test_one_by_one_gives_the_same_bits_and_everything_is_finite(observations: Observations) -> None:
    stream = FeatureStream()
    single = np.array([stream.update(row) for row in observations]).reshape(len(observations), len(FEATURES))
    many = features_of(observations)
    assert bits(single) == bits(many)
    assert np.isfinite(many).all()
    assert np.abs(many).max(initial=0.0) <= 15.0


@settings(max_examples=20)
@given(any_observations(READS, max_size=20))
def test_no_feature_knows_what_comes_later(observations: Observations) -> None:
    half = len(observations) // 2
    assert bits(features_of(observations.rows(slice(0, half)))) == bits(features_of(observations)[:half])


def test_a_stream_goes_on_where_it_stopped() -> None:
    observations = healthy_observations(100)
    stream = FeatureStream()
    stream.extend(observations.rows(slice(0, 60)))
    resumed = restore(FeatureStream(), state_of(stream))
    assert bits(resumed.extend(observations.rows(slice(60, 100)))) == bits(features_of(observations)[60:])


def test_what_was_never_measured_is_neutral() -> None:
    nothing = Observations(np.arange(1, 80))
    assert not features_of(nothing).any()


@pytest.mark.parametrize(
    ("measurement", "feature"),
    [("training_loss", "loss_z"), ("grad_norm", "gradient_z"), ("update_rms", "update_z"), ("sigma_sq", "sigma_sq_z")],
)
def test_infinity_saturates_and_leaves_the_reference_alone(measurement: str, feature: str) -> None:
    hurt = with_values(measurement, {80: math.inf})
    z = column(hurt, feature)
    assert z[80] == SATURATED
    assert np.abs(np.delete(z, 80)).max() < 3.0


def test_peaks_fade_and_sums_remember() -> None:
    hurt = with_values("grad_norm", {80: 1e6})
    peak, total = column(hurt, "gradient_peak"), column(hurt, "gradient_sum")
    assert peak[81] == pytest.approx(MEMORY * peak[80])
    assert math.expm1(total[80]) - math.expm1(total[79]) == pytest.approx(3.5, abs=0.6)  # z clipped at 4, less 0.5


def test_the_excess_of_the_loss_is_relative_to_the_lowest() -> None:
    loss = np.concatenate([np.full(200, 2.0), np.full(100, 3.0), np.full(100, 2.0)])
    run = Observations(np.arange(1, 401), {"training_loss": loss})
    excess, height = column(run, "loss_excess"), column(run, "loss_height")
    assert not excess[:200].any()
    assert excess[299] == pytest.approx(math.log(1.5))
    assert height[299] == 1.0
    assert (excess[399], height[399]) == pytest.approx((0.0, 0.0), abs=1e-9)
    assert column(with_values("training_loss", {80: math.inf}), "loss_excess")[80] == LARGEST_EXCESS


def test_broken_numbers_are_told_apart() -> None:
    assert column(with_values("non_finite_count", {80: 3.0}), "non_finite")[80] == 1.0
    assert column(with_values("grad_norm", {80: 0.0}), "zero_gradient")[80] == 1.0
    assert column(with_values("uniform_gap", {80: 1e-3}), "uniform")[80] == 1.0
    for name in ("non_finite", "zero_gradient", "uniform"):
        assert not column(healthy_observations(120), name).any()


def test_a_model_that_has_learned_nothing_yet_is_not_uniform() -> None:
    run = Observations(np.arange(1, 5), {"uniform_gap": np.array([0.01, 0.0, -0.01, 0.0])})
    assert not column(run, "uniform").any()


def test_hardware_events_are_counted_or_else_read_off_lambda() -> None:
    counted = Observations(np.arange(1, 5), {"hardware_events": np.array([0.0, 2.0, 0.0, 0.0])})
    assert np.expm1(column(counted, "events_recent")) == pytest.approx([0.0, 2.0, 1.8, 1.62])
    inferred = Observations(np.arange(1, 5), {"lambda": np.array([1.0, 1.0, 1.4, 1.4])})
    assert np.expm1(column(inferred, "events_recent")) == pytest.approx([0.0, 0.0, 1.0, 0.9])


def test_an_anomaly_has_an_age_until_it_has_been_quiet() -> None:
    events = np.zeros(120)
    events[[10, 20]] = 1.0
    run = Observations(np.arange(1, 121), {"hardware_events": events})
    age, quiet = np.expm1(column(run, "anomaly_age")), np.expm1(column(run, "anomaly_quiet"))
    assert age[[9, 10, 20, 70, 72]] == pytest.approx([0, 1, 11, 61, 0])
    assert quiet[[20, 30, 72]] == pytest.approx([0, 10, 0])


def test_validation_losses_count_once() -> None:
    validation = np.repeat([3.0, 2.9, 2.8, 2.7, 2.6, 2.5, 2.4, 4.8], 10)
    run = Observations(np.arange(1, 81), {"validation_loss": validation})
    jump, excess = column(run, "validation_jump"), column(run, "validation_excess")
    assert jump[69] == pytest.approx(0.0)
    assert jump[70] > 4.0
    assert jump[79] == jump[70]
    assert excess[79] == pytest.approx(math.log(2.0))


def test_an_observation_without_anything_changes_nothing() -> None:
    stream = FeatureStream()
    assert not stream.update(Observation(1)).any()
