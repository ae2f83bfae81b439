from __future__ import annotations

import json
import math
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from rmetric.metric import SlidingRange
from rmetric.signals import HardwareFailureRate, ValidationDrift, gradient_variance

losses = st.lists(st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 3.0, math.nan, math.inf, 1.7e308, -1.7e308])))


def _rate(times_s: list[float], window: int = 50) -> float:
    rate = HardwareFailureRate(window)
    for time_s in times_s:
        rate.update(time_s)
    return rate.value


def test_lambda_is_events_over_the_hours_they_span() -> None:
    assert _rate([100.0, 1900.0, 3700.0, 7300.0]) == 2.0


@pytest.mark.parametrize("times_s", [[], [5.0]])
def test_lambda_is_zero_while_there_is_no_span(times_s: list[float]) -> None:
    assert _rate(times_s) == 0.0


def test_a_burst_spans_one_second_at_least() -> None:
    assert _rate([7.0] * 10) == 36_000.0
    assert _rate([7.0, 7.5]) == 7200.0


def test_lambda_forgets_all_but_the_last_fifty_events() -> None:
    calm, busy = [3600.0 * hour for hour in range(100)], [400_000.0 + 60.0 * minute for minute in range(50)]
    assert _rate(calm + busy) == pytest.approx(50 / (49 / 60), rel=1e-12)
    assert _rate(calm + busy, window=60) < 10.0


def test_a_window_too_short_for_a_rate_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 events, not 1"):
        HardwareFailureRate(1)


@pytest.mark.parametrize(("time_s", "per_hour"), [(1900.0, 2.0), (100.0, 3600.0), (100.5, 3600.0), (50.0, 3600.0)])
def test_with_a_start_the_first_event_shows(time_s: float, per_hour: float) -> None:
    rate = HardwareFailureRate(start_s=100.0)
    assert rate.value == 0.0
    rate.update(time_s)
    assert rate.value == per_hour


@given(st.lists(st.floats(min_value=0.0, max_value=1e6), min_size=2, max_size=80), st.floats(max_value=1e6))
def test_with_more_events_than_one_the_start_changes_nothing(times_s: list[float], start_s: float) -> None:
    rate = HardwareFailureRate(start_s=start_s)
    for time_s in sorted(times_s):
        rate.update(time_s)
    assert rate.value == _rate(sorted(times_s))


def test_sigma_squared_is_the_population_variance_over_the_last_axis() -> None:
    norms = np.random.default_rng(0).random((5, 3, 8))
    expected = [[sum((x - sum(row) / 8) ** 2 for x in row) / 8 for row in run] for run in norms.tolist()]
    assert gradient_variance(norms) == pytest.approx(np.array(expected), rel=1e-12)


def test_drift_is_the_loss_minus_the_mean_of_the_losses_before_it() -> None:
    drift = ValidationDrift(window=3)
    got = [drift.update(loss) for loss in (4.0, 3.0, 2.0, 1.0, 9.0)]
    assert math.isnan(got[0])
    assert got[1:] == [-1.0, -1.5, -2.0, 7.0]


@given(
    st.one_of(losses, st.lists(st.floats(1.5, 12.0), max_size=300), st.lists(st.floats(1e-3, 1e3), max_size=300)),
    st.integers(0, 300),
    st.sampled_from([1, 7, 100]),
)
def test_many_evaluations_at_once_give_the_same_bits(found: list[float], first: int, window: int) -> None:
    one_by_one, together = ValidationDrift(window), ValidationDrift(window)
    expected = [one_by_one.update(loss) for loss in found]
    parts = np.split(np.array(found), [min(first, len(found))])
    got = np.concatenate([together.extend(part) for part in parts])
    assert np.array_equal(got, expected, equal_nan=True)
    assert together.update(2.0).hex() == one_by_one.update(2.0).hex()


def test_losses_of_very_different_size_are_no_warning() -> None:
    found = np.array([1e-180, 1e180] * 3)
    one_by_one = ValidationDrift()
    assert np.array_equal(ValidationDrift().extend(found), [one_by_one.update(x) for x in found], equal_nan=True)


def test_the_first_evaluation_is_not_measured_rather_than_zero() -> None:
    assert math.isnan(ValidationDrift().update(2.0))


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_a_non_finite_loss_is_an_infinite_drift_and_leaves_the_history_alone(broken: float) -> None:
    drift, untouched = ValidationDrift(), ValidationDrift()
    for loss in (4.0, 3.0):
        drift.update(loss)
        untouched.update(loss)
    assert drift.update(broken) == math.inf
    assert drift.update(5.0) == untouched.update(5.0) == 1.5


@given(losses)
def test_drift_is_never_silently_lost(values: list[float]) -> None:
    drift, known = ValidationDrift(window=4), 0
    for loss in values:
        got = drift.update(loss)
        assert got > -math.inf or math.isnan(got)
        assert math.isnan(got) == (math.isfinite(loss) and known == 0)
        if not math.isfinite(loss):
            assert got == math.inf
        known += math.isfinite(loss)


def test_the_mean_is_exact_after_a_huge_loss_has_left_the_window() -> None:
    drift = ValidationDrift(window=2)
    for loss in (1e16, 1.0, 2.0):
        drift.update(loss)
    assert drift.update(4.0) == 2.5


def test_a_drift_window_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 evaluation, not 0"):
        ValidationDrift(0)


def test_the_authors_normalised_drift_is_reproduced(authors_logs: list[Path]) -> None:
    compared = 0
    for path in authors_logs:
        drift, window = ValidationDrift(), SlidingRange(1000)
        events = [json.loads(line) for line in path.read_text().splitlines()]
        for record in (event for event in events if event["event"] == "METRICS"):
            norm = window.update(drift.update(record["validation_loss"]))
            if not record["is_nan"]:
                assert norm == pytest.approx(record["delta_l_norm"], abs=1e-12)
                compared += 1
    assert compared > 50


def test_no_other_definition_of_drift_would_reproduce_it(authors_logs: list[Path]) -> None:
    # The window that counts the current loss in its own mean: off by far more than rounding.
    worst = 0.0
    for path in authors_logs:
        history: list[float] = []
        window = SlidingRange(1000)
        for event in map(json.loads, path.read_text().splitlines()):
            if event["event"] == "METRICS" and not event["is_nan"]:
                history.append(event["validation_loss"])
                norm = window.update(history[-1] - math.fsum(history) / len(history))
                worst = max(worst, abs(norm - event["delta_l_norm"]))
    assert worst > 1e-3
