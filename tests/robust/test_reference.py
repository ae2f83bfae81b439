"""Running references: median and MAD against SciPy; a trend taken out of both; Page's CUSUM with a cap for outliers."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from scipy.stats import median_abs_deviation

from rmetric.robust.columns import level_of
from rmetric.robust.reference import (
    LEVEL_CAP,
    LEVEL_RECORDS,
    Level,
    RobustReference,
    RobustTrend,
    SortedWindow,
    UpperReference,
    doubt,
)
from tests.helpers import bits

values = st.lists(st.one_of(st.floats(-1e6, 1e6), st.integers(-3, 3).map(float)), min_size=1, max_size=30)


@given(values, st.integers(1, 12))
def test_a_window_has_the_median_and_the_deviation_of_its_last_values(numbers: list[float], length: int) -> None:
    window = SortedWindow(length)
    for count, number in enumerate(numbers, 1):
        window.add(number)
        recent = numbers[max(0, count - length) : count]
        assert len(window) == len(recent)
        assert window.middle == np.median(recent)
        assert window.deviation(window.middle) == np.median(np.abs(np.array(recent) - window.middle))


def test_the_scale_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    reference = RobustReference(window=16, warm_up=8, floor=1e-9, clip=1e9)
    numbers = rng.normal(3.0, 0.5, 60)
    for number in numbers.tolist():
        reference.update(number)
    before = numbers[-17:-1]
    assert reference.middle == pytest.approx(np.median(before))
    assert reference.scale == pytest.approx(1.4826 * median_abs_deviation(before))


def test_nothing_is_scored_before_the_warm_up_is_over() -> None:
    reference = RobustReference(window=8, warm_up=4, floor=0.1, clip=5.0)
    scores = [reference.update(1.0) for _ in range(6)]
    assert [math.isnan(score) for score in scores] == [True] * 4 + [False] * 2


def test_a_calm_signal_is_judged_by_the_floor() -> None:
    reference = RobustReference(window=8, warm_up=4, floor=0.1, clip=5.0)
    for _ in range(8):
        reference.update(2.0)
    assert reference.update(2.3) == pytest.approx(3.0)


# -- trend


def trend(**changes: float) -> RobustTrend:
    return RobustTrend(**{"window": 64, "warm_up": 48, "floor": 1e-6, "growth": 0.0, **changes})  # type: ignore[arg-type]


def scores(values: np.ndarray, **changes: float) -> np.ndarray:
    """Deviations in scales, without the doubt of a full window."""
    judge = trend(**changes)
    judged = [judge.update(step, value) for step, value in enumerate(values.tolist(), start=1)]
    return doubt(64) * np.array(judged)


def noise(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, 0.1, n)


def test_noise_without_a_trend_has_scores_of_one_scale() -> None:
    z = scores(2.0 + noise(2000))[64:]
    assert np.std(z) == pytest.approx(1.0, abs=0.15)
    assert abs(np.mean(z)) < 0.1


def test_where_few_records_say_what_to_expect_more_is_needed_to_stand_out() -> None:
    young, old = (scores(np.append(np.full(records, 2.0), 3.0), floor=0.1)[-1] for records in (50, 200))
    assert (young, old) == (pytest.approx(10.0 * doubt(64) / doubt(50)), pytest.approx(10.0))


@pytest.mark.parametrize("slope", [-0.001, -0.01, -0.1])
def test_the_scale_is_that_of_the_noise_however_steep_the_signal_falls(slope: float) -> None:
    z = scores(5.0 + slope * np.arange(2000) + noise(2000))[128:]
    assert np.std(z) == pytest.approx(1.0, abs=0.2)
    # What is left of the lag is at most the margin of one scale.
    assert -1.4 < np.mean(z) < 0.1


def test_a_rising_signal_is_not_explained_away() -> None:
    assert np.mean(scores(5.0 + 0.01 * np.arange(400) + noise(400))[128:]) > 2.0


def test_a_signal_may_rise_with_the_power_of_the_step_that_is_allowed() -> None:
    rising = 0.5 * np.log(np.arange(1, 401)) + noise(400)
    assert np.mean(scores(rising)[48:80]) > 2.0
    assert np.mean(scores(rising, growth=0.5)[48:80]) < 0.5


def test_late_in_a_run_the_power_allows_next_to_nothing() -> None:
    values = 2.0 + noise(2000)
    values[1900:] += 0.4
    allowed = scores(values) - scores(values, growth=0.5)
    assert 0.0 < allowed[1900:].min() < allowed[1900:].max() < 0.2 < 2.0 < allowed[48]


def test_a_lasting_shift_is_believed_after_half_a_window_and_not_before() -> None:
    values = 2.0 + noise(400)
    values[200:] += 0.4
    z = scores(values)
    assert np.mean(z[200:228]) > 3.0
    assert np.mean(z[300:]) < 0.5


def test_outliers_never_raise_their_own_bar() -> None:
    values = 2.0 + noise(300)
    values[200:210] = 1e6
    z = scores(values)
    assert (z[200:210] > 1e6).all()
    assert np.abs(z[210:230]).max() < 5.0


def test_infinity_passes_nan_waits_and_neither_leaves_a_trace() -> None:
    one, other = trend(), trend()
    for step, value in enumerate((2.0 + noise(100)).tolist(), start=1):
        one.update(step, value)
        other.update(step, value)
    assert one.update(101, math.inf) == math.inf
    assert math.isnan(one.update(102, math.nan))
    assert one.update(103, 2.1) == other.update(103, 2.1)


def test_the_warm_up_is_as_long_as_it_says() -> None:
    assert np.flatnonzero(~np.isnan(scores(2.0 + noise(80))))[0] == 48


# -- the upper scale


def test_for_a_normal_distribution_the_upper_scale_is_the_usual_one() -> None:
    one, other = (kind(window=400, warm_up=400, floor=1e-9, clip=5.0) for kind in (RobustReference, UpperReference))
    for value in np.random.default_rng(5).normal(0.0, 2.0, 401).tolist():
        one.update(value)
        other.update(value)
    assert one.scale <= other.scale < 1.25 * one.scale


# -- several records


@given(st.lists(st.floats(-1e6, 1e6), min_size=LEVEL_RECORDS, max_size=40))
def test_the_level_against_its_definition(values: list[float]) -> None:
    level = Level()
    found = [level.update(value) for value in values]
    capped = np.clip(values[-LEVEL_RECORDS:], -LEVEL_CAP, LEVEL_CAP)
    assert found[-1] == pytest.approx(capped.mean(), abs=1e-12)


@pytest.mark.parametrize("z", [-0.04839324936985571, 5.0])  # the rounded mean of eight of the first is less than it
def test_the_level_by_columns_is_the_same_where_deviations_repeat(z: float) -> None:
    level, repeated = Level(), np.full(20, z)
    assert bits(level_of(Level(), repeated)) == bits([level.update(value) for value in repeated.tolist()])


def test_a_record_that_was_not_judged_is_left_out() -> None:
    level = Level()
    assert np.isnan([level.update(z) for z in (*[2.0] * (LEVEL_RECORDS - 1), math.nan)]).all()
    assert level.update(2.0) == 2.0
