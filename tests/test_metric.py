from __future__ import annotations

import math
from collections import deque

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp

from rmetric.metric import PRESETS, RMetric, RValue, SlidingRange
from rmetric.signals import Weights
from tests.helpers import any_float, bits

columns = hnp.arrays(np.float64, st.integers(0, 60), elements=any_float)
signals = st.integers(0, 40).flatmap(
    lambda length: st.tuples(*[hnp.arrays(np.float64, length, elements=any_float) for _ in range(3)])
)
windows = st.sampled_from([2, 3, 7, 1000])
cuts = st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=6)


def _in_pieces(window: SlidingRange, values: np.ndarray, pieces: list[tuple[int, bool]]) -> list[float]:
    """Normalise, cut into pieces that go through ``extend`` (where true) or ``update``."""
    out: list[float] = []
    start = 0
    for end, at_once in [*sorted(pieces), (len(values), True)]:
        piece = values[start : min(end, len(values))]
        out += window.extend(piece).tolist() if at_once else [window.update(value) for value in piece.tolist()]
        start = max(start, min(end, len(values)))
    return out


def _naive(values: list[float], window: int) -> list[float]:
    """Min–max over the last records, written as the definition reads."""
    last: deque[float] = deque(maxlen=window)
    out = []
    for value in values:
        last.append(value)
        known = [item for item in last if math.isfinite(item)]
        if math.isinf(value):
            out.append(1.0)
        elif math.isnan(value) or max(known) == min(known):
            out.append(0.0)
        else:
            out.append((value - min(known)) / (max(known) - min(known)))
    return out


# --- SlidingRange ----------------------------------------------------------------------------------------------------


@given(columns, windows)
def test_update_and_extend_give_the_same_bits(values: np.ndarray, window: int) -> None:
    one_by_one = SlidingRange(window)
    assert bits([one_by_one.update(value) for value in values.tolist()]) == bits(SlidingRange(window).extend(values))


@given(columns, windows, cuts)
def test_any_mixture_of_update_and_extend_gives_the_same_bits(
    values: np.ndarray, window: int, pieces: list[tuple[int, bool]]
) -> None:
    assert bits(_in_pieces(SlidingRange(window), values, pieces)) == bits(SlidingRange(window).extend(values))


def test_the_published_window_agrees_over_thousands_of_records() -> None:
    rng = np.random.default_rng(0)
    values = np.round(rng.standard_normal(5000), 2) * 10.0 ** rng.integers(-3, 3, 5000)
    values[rng.random(5000) < 0.05] = np.nan
    values[rng.random(5000) < 0.05] = np.inf
    values[1500:2800] = np.nan  # longer than the window: the history runs empty
    one_by_one = SlidingRange(1000)
    expected = bits([one_by_one.update(value) for value in values.tolist()])
    assert bits(SlidingRange(1000).extend(values)) == expected
    assert (
        bits(_in_pieces(SlidingRange(1000), values, [(1, True), (999, True), (1001, False), (3500, True)])) == expected
    )


@given(columns, windows)
def test_the_result_lies_between_0_and_1(values: np.ndarray, window: int) -> None:
    normalised = SlidingRange(window).extend(values)
    assert ((normalised >= 0.0) & (normalised <= 1.0)).all()


@given(st.lists(st.one_of(st.floats(-1e3, 1e3), st.sampled_from([math.nan, math.inf, 0.0, 1.0]))), windows)
def test_it_is_min_max_normalisation_over_the_last_records(values: list[float], window: int) -> None:
    normaliser = SlidingRange(window)
    got = [normaliser.update(value) for value in values]
    assert got == pytest.approx(_naive(values, window), rel=1e-12, abs=1e-300)


@given(columns, st.lists(st.sampled_from([math.nan, math.inf, -math.inf]), min_size=1, max_size=5))
def test_what_is_not_finite_never_enters_the_history(values: np.ndarray, noise: list[float]) -> None:
    disturbed, clean = SlidingRange(1000), SlidingRange(1000)
    for index, value in enumerate(values.tolist()):
        bad = noise[index % len(noise)]
        assert disturbed.update(bad) == (0.0 if math.isnan(bad) else 1.0)
        assert bits([disturbed.update(value)]) == bits([clean.update(value)])


@given(columns, windows)
def test_a_scale_by_a_power_of_two_changes_nothing(values: np.ndarray, window: int) -> None:
    ordinary = np.clip(np.nan_to_num(values), -1e100, 1e100)
    ordinary[np.abs(ordinary) < 1e-100] = 0.0
    assert bits(SlidingRange(window).extend(ordinary)) == bits(SlidingRange(window).extend(ordinary * 1024.0))


def test_the_extremes_of_the_window_are_0_and_1() -> None:
    assert SlidingRange(10).extend(np.array([5.0, 3.0, 9.0, 6.0])).tolist() == [0.0, 0.0, 1.0, 0.5]


def test_fewer_than_two_or_equal_values_give_0() -> None:
    assert SlidingRange(10).extend(np.array([7.0, 7.0, 7.0])).tolist() == [0.0, 0.0, 0.0]


def test_a_value_leaves_the_window_after_as_many_records() -> None:
    got = SlidingRange(3).extend(np.array([0.0, 100.0, 50.0, 60.0, 55.0]))
    assert got.tolist() == [0.0, 1.0, 0.5, 0.2, 0.5]


def test_records_without_a_value_count_for_the_window() -> None:
    got = SlidingRange(3).extend(np.array([0.0, 10.0, math.nan, math.nan, 5.0]))
    assert got.tolist() == [0.0, 1.0, 0.0, 0.0, 0.0]


def test_the_span_of_the_largest_doubles_does_not_overflow() -> None:
    huge = 1.7976931348623157e308
    assert SlidingRange(5).extend(np.array([-huge, huge, 0.0])).tolist() == [0.0, 1.0, 0.5]


def test_negative_zero_is_zero() -> None:
    assert bits(SlidingRange(5).extend(np.array([1.0, -0.0, 0.0]))) == bits([0.0, 0.0, 0.0])


@pytest.mark.parametrize("window", [1, 0, -5])
def test_a_window_without_a_range_is_refused(window: int) -> None:
    with pytest.raises(ValueError, match="at least 2 records"):
        SlidingRange(window)


# --- RMetric ---------------------------------------------------------------------------------------------------------


def test_the_papers_setting() -> None:
    metric = RMetric.paper()
    assert metric.weights == Weights(lambda_=0.10, sigma_sq=0.45, delta_l=0.70)
    assert (metric.threshold, metric.window) == (0.57, 1000)
    assert sum(metric.weights) == 1.25
    assert RMetric.paper_case_study().window == 100
    assert RMetric.paper_case_study().weights == metric.weights
    assert {name: make().threshold for name, make in PRESETS.items()} == {"paper": 0.57, "paper-case-study": 0.57}


def test_r_by_hand() -> None:
    metric = RMetric.paper()
    metric.update(0.0, 1.0, -0.5)
    metric.update(4.0, 3.0, 0.5)
    got = metric.update(1.0, 1.5, 0.0)
    assert got == pytest.approx((0.10 * 0.25 + 0.45 * 0.25 + 0.70 * 0.5, 0.25, 0.25, 0.5), rel=1e-15)


@given(signals)
def test_r_lies_between_0_and_1_25(values: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    r = np.asarray(RMetric.paper().extend(*values).r)
    unmeasured = np.isnan(values).all(axis=0)
    assert np.array_equal(np.isnan(r), unmeasured)
    assert ((r[~unmeasured] >= 0.0) & (r[~unmeasured] <= 1.25)).all()


def test_r_reaches_both_ends() -> None:
    metric = RMetric.paper()
    assert metric.update(0.0, 0.0, 0.0).r == 0.0
    assert metric.update(1.0, 1.0, 1.0).r == 1.25
    assert metric.update(math.inf, math.inf, math.inf).r == 1.25


@given(signals, st.sampled_from([2, 5, 1000]), st.integers(0, 40))
def test_the_metric_updates_and_extends_to_the_same_bits(
    values: tuple[np.ndarray, np.ndarray, np.ndarray], window: int, cut: int
) -> None:
    one_by_one, at_once, mixed = (RMetric(window=window) for _ in range(3))
    rows = [one_by_one.update(*row) for row in zip(*(column.tolist() for column in values), strict=True)]
    batch = at_once.extend(*values)
    head, tail = mixed.extend(*(column[:cut] for column in values)), mixed.extend(*(column[cut:] for column in values))
    for position, name in enumerate(RValue._fields):
        expected = bits([row[position] for row in rows])
        assert bits(batch[position]) == expected, name
        assert bits(np.append(head[position], tail[position])) == expected, name


@pytest.mark.parametrize(("which", "weight"), [(0, 0.10), (1, 0.45), (2, 0.70)])
def test_a_non_finite_signal_counts_with_its_whole_weight(which: int, weight: float) -> None:
    metric = RMetric.paper()
    metric.update(1.0, 1.0, 1.0)
    values = [1.0, 1.0, 1.0]
    values[which] = math.inf
    assert metric.update(*values).r == weight
    assert metric.update(1.0, 1.0, 1.0).r == 0.0  # and is forgotten at once


def test_a_signal_that_was_not_measured_counts_for_nothing() -> None:
    metric = RMetric.paper()
    metric.update(math.nan, 0.0, 0.0)
    assert metric.update(math.nan, 1.0, 1.0) == (0.45 + 0.70, 0.0, 1.0, 1.0)


def test_r_is_not_known_where_no_signal_was_measured() -> None:
    metric = RMetric.paper()
    metric.update(0.0, 0.0, 0.0)
    assert math.isnan(metric.update(math.nan, math.nan, math.nan).r)
    assert metric.update(1.0, math.nan, math.nan).r == 0.10


def test_fresh_forgets_the_history_and_keeps_the_settings() -> None:
    metric = RMetric(weights=(0.2, 0.3, 0.5), threshold=0.4, window=50)
    metric.update(0.0, 0.0, 0.0)
    again = metric.fresh(threshold=0.6)
    assert (again.weights, again.threshold, again.window) == ((0.2, 0.3, 0.5), 0.6, 50)
    assert again.update(9.0, 9.0, 9.0).r == 0.0
    assert metric.update(9.0, 9.0, 9.0).r == 1.0
    assert metric.threshold == 0.4


@pytest.mark.parametrize("weights", [(-0.1, 0.5, 0.5), (math.nan, 0.5, 0.5), (0.1, math.inf, 0.5)])
def test_weights_that_make_no_sense_are_refused(weights: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="finite and at least 0"):
        RMetric(weights=weights)
