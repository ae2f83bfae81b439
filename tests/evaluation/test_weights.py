"""Weights and thresholds are found where a search by hand finds them."""

from __future__ import annotations

import numpy as np
import pytest

from rmetric.detectors import RMetricDetector
from rmetric.evaluation.curves import curve_of, paper_curve, strict_curve
from rmetric.evaluation.protocols import PROTOCOLS, Timeline
from rmetric.evaluation.scores import score
from rmetric.evaluation.thresholds import threshold_for_f1
from rmetric.evaluation.weights import bootstrap_weights, fit_weights, weight_grid
from rmetric.records import Observations
from rmetric.signals import Weights
from tests.evaluation.builders import build_run

STEPS = np.arange(10, 301, 10)


def test_the_grid_covers_the_simplex():
    grid = np.array(weight_grid(4))
    assert grid.sum(axis=1) == pytest.approx(1.25)
    assert len(grid) == 15 and grid.min() == 0 and grid.max() == 1.25


def test_weighing_gives_the_bits_of_the_metric():
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(size=400) for name in ("lambda", "sigma_sq", "delta_l")}
    explained = RMetricDetector().extend_explained(Observations(np.arange(400), columns))
    assert (Weights().weigh(*explained[1:]) == explained.r).all()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_signal_that_tells_gets_the_weight(protocol):
    runs = [build_run(STEPS, onset=105, failure=205), build_run(STEPS, onset=155, failure=290), build_run(STEPS)]
    timeline = Timeline.of(runs)
    rng = np.random.default_rng(1)
    noise = rng.uniform(size=(2, len(timeline.step)))
    tells = np.where(timeline.run == 0, timeline.step == 120, (timeline.run == 1) & (timeline.step == 170))
    signals = np.stack([tells * 1.0, *noise])
    fitted = fit_weights(timeline, signals, protocol, weight_grid(4))
    assert fitted is not None and fitted.f1 == 1.0
    counts = timeline.count(protocol, fitted.weights.weigh(*signals), fitted.threshold)
    assert score("f1", counts).value == 1.0
    assert fitted.weights.lambda_ > 0.5


def test_each_resample_is_fitted_as_the_runs_themselves_are():
    runs = [build_run(STEPS, onset=105, failure=205), build_run(STEPS, onset=155, failure=290), build_run(STEPS)]
    timeline = Timeline.of(runs)
    signals = np.random.default_rng(4).uniform(size=(3, len(timeline.step)))
    grid = weight_grid(4)
    weights_BR = np.array([[1.0, 1.0, 1.0], [2.0, 0.0, 1.0], [0.0, 0.0, 3.0]])
    drawn = bootstrap_weights(timeline, signals, weights_BR, grid, thresholds=2000)
    fitted = fit_weights(timeline, signals, "strict", grid)
    again = fit_weights(timeline, signals, "strict", [Weights(*drawn[0])])
    assert fitted is not None and again is not None
    assert again.f1 == fitted.f1 < 1.0
    part, rows = timeline.only(np.array([True, False, True]))
    alone = fit_weights(part, signals[:, rows], "strict", grid)
    resampled = fit_weights(part, signals[:, rows], "strict", [Weights(*drawn[1])])
    assert alone is not None and resampled is not None
    assert drawn[1].sum() == pytest.approx(1.25) and resampled.f1 <= alone.f1
    assert np.isnan(drawn[2]).all()  # no run of this resample failed


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_fitted_threshold_keeps_what_it_was_chosen_for_even_if_that_is_to_alert_always(protocol):
    timeline = Timeline.of([build_run(STEPS, onset=15, failure=205), build_run(STEPS, onset=15, failure=290)])
    scores = np.where(timeline.step >= 20, 0.25, 0.0)
    curve = curve_of(timeline, scores, protocol)
    threshold = threshold_for_f1(curve)
    assert score("f1", timeline.count(protocol, scores, threshold)).value == curve.f1.max() == 1.0
    constant = np.full(len(scores), 0.5)
    curve = paper_curve(timeline, constant)
    assert score("f1", timeline.count("paper", constant, threshold_for_f1(curve))).value == 1.0


def test_a_curve_that_never_warns_has_no_precision_recall():
    timeline = Timeline.of([build_run(STEPS, onset=105, failure=205), build_run(STEPS)])
    curve = strict_curve(timeline, timeline.starts(np.full(len(timeline.step), np.nan)))
    recalls, precisions = curve.precision_recall()
    assert len(recalls) == len(precisions) == 0


def test_nothing_is_fitted_without_a_failure():
    timeline = Timeline.of([build_run(STEPS)])
    assert fit_weights(timeline, np.zeros((3, len(STEPS)))) is None


def test_only_the_given_runs_are_used():
    runs = [build_run(STEPS, onset=105, failure=205), build_run(STEPS, onset=105, failure=205)]
    timeline = Timeline.of(runs)
    part, rows = timeline.only(np.array([False, True]))
    assert len(part) == 1 and rows.sum() == len(STEPS)
    assert part.bounds.tolist() == [0, len(STEPS)]
    assert (part.zone == timeline.zone[rows]).all()
