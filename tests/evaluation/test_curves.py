"""All thresholds at once agree with counting at each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_curve

from rmetric.evaluation.curves import Curve, paper_curve, strict_curve
from rmetric.evaluation.protocols import Timeline
from rmetric.evaluation.scores import f1, totals
from rmetric.evaluation.thresholds import threshold_for_budget, threshold_for_f1, threshold_within_budget
from tests.evaluation.builders import build_run

STEPS = np.arange(10, 301, 10)
RUNS = [
    build_run(STEPS, onset=105, failure=205),
    build_run(STEPS, onset=155, failure=290),
    build_run(STEPS, onset=155),
    build_run(STEPS),
    build_run(STEPS, onset=55, outcome="censored"),
]
TIMELINE = Timeline.of(RUNS)
LEVELS = st.sampled_from([np.nan, -1.0, 0.0, 0.25, 0.5, 1.0, 7.0, np.inf])
SCORES = st.lists(LEVELS, min_size=len(TIMELINE.step), max_size=len(TIMELINE.step)).map(np.array)


@given(SCORES)
def test_a_sweep_equals_the_direct_count_at_each_threshold(scores):
    for protocol, curve in (
        ("strict", strict_curve(TIMELINE, TIMELINE.starts(scores))),
        ("paper", paper_curve(TIMELINE, scores)),
    ):
        assert curve.failed == 2
        assert (np.diff(curve.threshold) > 0).all()
        middles = np.concatenate([curve.threshold, curve.threshold[np.isfinite(curve.threshold)] + 0.01])
        for threshold in middles:
            counts = TIMELINE.count(protocol, scores, threshold)
            at = np.searchsorted(curve.threshold, threshold, side="right") - 1
            assert (counts.tp.sum(), counts.fp.sum()) == (curve.tp[at], curve.fp[at])


@given(SCORES)
def test_f1_lies_between_0_and_1_and_the_fitted_threshold_attains_its_maximum(scores):
    curve = strict_curve(TIMELINE, TIMELINE.starts(scores))
    assert ((curve.f1 >= 0) & (curve.f1 <= 1)).all()
    threshold = threshold_for_f1(curve)
    attained = f1(totals(TIMELINE.count("strict", scores, threshold)))
    assert attained == pytest.approx(curve.f1.max())


@given(SCORES)
def test_the_budget_is_kept_where_the_threshold_was_fitted(scores):
    budget = 1 / 300
    curve = strict_curve(TIMELINE, TIMELINE.starts(scores))
    threshold = threshold_for_budget(curve, budget)
    if np.isnan(threshold):
        assert (curve.fp > budget * curve.healthy).all()
    else:
        assert TIMELINE.count("strict", scores, threshold).fp.sum() <= budget * curve.healthy


@given(SCORES)
def test_within_the_budget_no_threshold_has_a_higher_f1(scores):
    budget = 1 / 300
    curve = strict_curve(TIMELINE, TIMELINE.starts(scores))
    threshold = threshold_within_budget(curve, budget)
    allowed = curve.fp <= budget * curve.healthy
    if np.isnan(threshold):
        assert not allowed.any()
    else:
        found = totals(TIMELINE.count("strict", scores, threshold))
        assert found.fp <= budget * curve.healthy
        assert f1(found) == pytest.approx(curve.f1[allowed].max())
        lower = allowed & (curve.threshold < threshold) & np.isfinite(curve.threshold)
        assert not lower.any() or curve.f1[lower].max() < curve.f1[allowed].max()


@given(SCORES)
def test_frontiers_are_monotone_and_areas_lie_in_0_to_1(scores):
    curve = strict_curve(TIMELINE, TIMELINE.starts(scores))
    rate, best = curve.frontier()
    assert (np.diff(rate) >= 0).all()
    assert (np.diff(best) > 0).all()
    recall, precision = curve.precision_recall()
    assert len(recall) == len(precision)
    assert (recall[:1] == 0).all() and (np.diff(recall) > 0).all()
    assert (np.diff(precision) <= 0).all()
    assert 0 <= curve.average_precision().value <= 1


def test_the_paper_curve_is_scikit_learns():
    rng = np.random.default_rng(3)
    runs = [build_run([10], onset=5, failure=20) for _ in range(20)] + [build_run([10]) for _ in range(30)]
    scores = np.round(rng.normal(size=50) + np.repeat([1.0, 0.0], [20, 30]), 1)
    truth = np.repeat([1, 0], [20, 30])
    curve = paper_curve(Timeline.of(runs), scores)
    precision, recall, _ = precision_recall_curve(truth, scores)
    ours = {(float(r), float(p)) for r, p in zip(curve.recall, curve.precision, strict=True) if p == p}
    assert ours == set(zip(recall[:-1].tolist(), precision[:-1].tolist(), strict=True))
    false, true, _ = roc_curve(truth, scores, drop_intermediate=False)
    assert set(zip(curve.false_alarm_rate, curve.recall, strict=True)) == set(zip(false, true, strict=True))
    assert curve.average_precision().value == pytest.approx(average_precision_score(truth, scores))


def test_average_precision_of_a_hand_drawn_curve():
    curve = Curve("strict", np.array([0.0, 1.0, 2.0]), np.array([2, 1, 0]), np.array([2, 0, 0]), failed=2, healthy=100)
    assert curve.average_precision().value == pytest.approx(0.5 * 1.0 + 0.5 * 0.5)


def test_what_cannot_be_said_has_a_reason():
    nobody = Timeline.of([build_run(STEPS)])
    curve = strict_curve(nobody, nobody.starts(np.zeros(len(STEPS))))
    assert np.isnan(curve.recall).all() and np.isnan(curve.f1).all()
    assert curve.average_precision().reason == "no run failed"
    for fitted in (threshold_for_f1, threshold_for_budget, threshold_within_budget):
        assert np.isnan(fitted(curve))
