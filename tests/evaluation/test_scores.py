"""Scores of counts, their intervals, and the reasons where there is none."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmetric.evaluation import scores
from rmetric.evaluation.protocols import Counts
from rmetric.evaluation.scores import (
    MAX_UNDEFINED,
    Score,
    binomial_interval,
    difference,
    false_alarm_bound,
    median_lead,
    poisson_interval,
    poisson_upper,
    recall_at_lead,
    resample,
    score,
    summarise,
    totals,
)


def counts(tp, fp, fn, healthy=None, lead=None, protocol="strict", available=None):
    size = len(tp)
    return Counts(
        protocol,
        np.array(tp),
        np.array(fp),
        np.array(fn),
        np.zeros(size, int),
        np.array(healthy if healthy is not None else [0] * size),
        np.array(lead if lead is not None else [math.nan] * size, float),
        np.array(available if available is not None else [math.nan] * size, float),
        np.ones(size, bool),
    )


HAND = counts(
    [1, 1, 0, 0, 0],
    [0, 1, 0, 2, 0],
    [0, 0, 1, 0, 0],
    healthy=[100, 100, 100, 400, 300],
    lead=[30, 10, math.nan, math.nan, math.nan],
    available=[40, 40, 20, math.nan, math.nan],
)


def test_scores_by_hand():
    found = {name: value.value for name, value in summarise(HAND).items()}
    assert found["precision"] == pytest.approx(2 / 5)
    assert found["recall"] == pytest.approx(2 / 3)
    assert found["f1"] == pytest.approx(4 / 8)
    assert found["mean_lead"] == 20 and found["median_lead"] == 20
    assert found["false_alarms_per_1000"] == pytest.approx(3.0)
    assert found["share_of_warning_time"] == pytest.approx(40 / 100)
    assert false_alarm_bound(HAND).value == pytest.approx(poisson_upper(3))


def test_runs_that_are_not_counted_do_not_count():
    hidden = Counts(**{**vars(HAND), "counted": np.array([True, True, True, False, True])})
    assert summarise(hidden)["precision"].value == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("tp", "fp", "fn", "undefined"),
    [
        ([0, 0], [0, 0], [0, 0], {"precision", "recall", "f1", "mean_lead", "median_lead"}),
        ([0, 0], [3, 0], [0, 0], {"recall", "f1", "mean_lead", "median_lead"}),
        ([0, 0], [0, 0], [1, 0], {"precision", "mean_lead", "median_lead"}),
    ],
)
def test_undefined_scores_have_a_reason_and_are_never_0(tp, fp, fn, undefined):
    untimed = {"false_alarms_per_1000", "share_of_warning_time", "mean_share", "mean_share_warned"}
    for name, value in summarise(counts(tp, fp, fn), resample(2, 50, np.random.default_rng(0))).items():
        if name in undefined | untimed:
            assert math.isnan(value.value) and value.reason, name
        else:
            assert not math.isnan(value.value) and not value.reason, name


def test_the_paper_protocol_has_no_rate_per_step():
    assert "paper protocol" in score("false_alarms_per_1000", counts([1], [0], [0], protocol="paper")).reason
    assert "paper protocol" in false_alarm_bound(counts([1], [0], [0], protocol="paper")).reason


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.booleans()), min_size=1, max_size=30), st.integers(0, 9))
def test_f1_and_its_interval_lie_in_0_to_1_and_the_interval_is_ordered(rows, seed):
    failed = np.array([row[2] for row in rows])
    hit = np.array([row[0] for row in rows]) & failed
    some = counts(hit.astype(int), [row[1] for row in rows], (failed & ~hit).astype(int))
    found = score("f1", some, resample(len(rows), 100, np.random.default_rng(seed)))
    assert math.isnan(found.value) == (not failed.any())
    if found.has_interval:
        assert 0 <= found.low <= found.high <= 1


@given(st.integers(0, 20), st.integers(1, 20), st.integers(0, 9))
def test_the_interval_of_recall_contains_it(hits, misses, seed):
    some = counts([1] * hits + [0] * misses, [0] * (hits + misses), [0] * hits + [1] * misses)
    found = score("recall", some, resample(hits + misses, 2000, np.random.default_rng(seed)))
    assert found.low <= found.value <= found.high
    assert found.low < found.high  # even if no run was hit: the exact interval takes over


def test_an_interval_is_exact_where_all_resamples_that_have_a_score_agree():
    few = counts([1, 1, *[0] * 40], [0] * 42, [0] * 42, lead=[30.0, 10.0, *[math.nan] * 40])
    weights = resample(42, 500, np.random.default_rng(0))
    assert (totals(few, weights).failed == 0).mean() > MAX_UNDEFINED  # they have neither of the two runs that failed
    found = summarise(few, weights)
    for name in ("recall", "precision"):
        assert (found[name].low, found[name].value, found[name].high) == (binomial_interval(2, 2)[0], 1.0, 1.0)
    assert not found["mean_lead"].has_interval  # nothing exact is known of it


def test_the_exact_interval_of_a_rate_contains_it():
    alone = counts([0], [3], [0], healthy=[1000])
    rate = score("false_alarms_per_1000", alone, resample(1, 50, np.random.default_rng(0)))
    assert (rate.low, rate.high) == poisson_interval(3.0)
    assert rate.low < rate.value < rate.high


def test_bootstrap_weights_are_reproducible_and_sum_to_the_runs():
    first, second = (resample(7, 30, np.random.default_rng(5)) for _ in range(2))
    assert (first == second).all()
    assert (first.sum(axis=1) == 7).all()
    assert resample(0, 3, np.random.default_rng(0)).shape == (3, 0)


def test_resamples_in_blocks_are_those_of_one_block(monkeypatch):
    some = counts([1, 0, 1, 1, 0], [0, 2, 0, 1, 0], [0, 1, 0, 0, 1], lead=[5.0, np.nan, 9.0, 4.0, np.nan])

    def answers():
        weights = resample(5, 40, np.random.default_rng(6))
        return weights, summarise(some, weights)

    weights, summary = answers()
    monkeypatch.setattr(scores, "BLOCK_WEIGHTS", 35)
    in_blocks, again = answers()
    assert (weights == in_blocks).all() and summary == again


def test_the_median_lead_of_a_resample_is_that_of_the_repeated_runs():
    leads = [5.0, 1.0, 9.0, 4.0]
    some = counts([1] * 4, [0] * 4, [0] * 4, lead=leads)
    weights = resample(4, 200, np.random.default_rng(1))
    expected = [np.median(np.repeat(leads, row.astype(int))) for row in weights]
    found = median_lead(some, weights)
    assert found.value == 4.5
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(expected, [2.5, 97.5])))


def test_a_detector_does_not_differ_from_itself():
    found = difference("f1", HAND, HAND, resample(5, 200, np.random.default_rng(2)))
    assert (found.value, found.low, found.high) == (0.0, 0.0, 0.0)


def test_relative_differences_are_in_per_cent():
    better = counts([1, 1], [0, 0], [0, 0])
    worse = counts([1, 0], [0, 0], [0, 1])
    assert difference("recall", worse, better, relative=True).value == pytest.approx(-50.0)
    nothing = counts([0, 0], [0, 0], [1, 1])
    assert math.isnan(difference("recall", worse, nothing, relative=True).value)


def test_recall_at_a_required_lead():
    assert recall_at_lead(HAND, np.array([0, 10, 11, 30, 31])).tolist() == pytest.approx(
        [2 / 3, 2 / 3, 1 / 3, 1 / 3, 0]
    )
    assert np.isnan(recall_at_lead(counts([0], [1], [0]), np.array([1]))).all()


def test_a_share_has_an_interval_and_nothing_of_nothing_a_reason():
    half, nothing = Score.share(1, 2), Score.share(0, 0, "no flip was harmful")
    assert (half.value, half.low, half.high) == (0.5, *binomial_interval(1, 2))
    assert not nothing.defined and nothing.reason == "no flip was harmful"
