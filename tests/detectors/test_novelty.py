"""Novelty detectors: isolation forest, ECOD, half-space trees, one-class SVM."""

from __future__ import annotations

import math

import numpy as np
import pytest
from river.anomaly import HalfSpaceTrees
from river.preprocessing import MinMaxScaler
from sklearn.preprocessing import RobustScaler
from sklearn.svm import OneClassSVM

from rmetric.detectors import (
    DETECTORS,
    CausalIsolationForest,
    HalfSpaceTreesDetector,
    OneClassSvm,
    WholeRunIsolationForest,
    make_detector,
)
from rmetric.detectors.features import READS, RunFeatures
from rmetric.records import Observations
from rmetric.state import state_of
from tests.helpers import bits, healthy_observations, printed_by, resumed_and_straight

# --- isolation forest ------------------------------------------------------------------------------------------------


def _whole(losses: list[float] | np.ndarray, evaluated: list[bool] | None = None) -> np.ndarray:
    column = np.asarray(losses, dtype=float)
    given = None if evaluated is None else np.array(evaluated)
    return WholeRunIsolationForest().score_run(
        Observations(np.arange(1, len(column) + 1), {"validation_loss": column}, given)
    )


def _changed(column: str, rows: slice | int, value: float, seed: int = 0) -> Observations:
    observations = healthy_observations(seed=seed)
    observations[column][rows] = value
    return Observations(observations.step, observations.columns)


# --- whole run -------------------------------------------------------------------------------------------------------


def test_the_odd_evaluation_scores_highest() -> None:
    losses = 3.0 + 0.01 * np.random.default_rng(0).standard_normal(60)
    losses[40] = 4.0
    scores = _whole(losses)
    assert scores.argmax() == 40
    assert scores[40] > 0.7 > WholeRunIsolationForest().threshold


def test_a_score_is_held_until_the_next_evaluation() -> None:
    losses = [math.nan, 3.0, 3.0, 2.9, 2.9, 2.9, 9.0]
    scores = _whole(losses)
    assert math.isnan(scores[0])
    assert scores[1] == scores[2]
    assert scores[3] == scores[4] == scores[5]
    assert scores[6] > scores[5]


def test_how_often_a_loss_is_repeated_does_not_matter() -> None:
    losses = 3.0 + 0.01 * np.random.default_rng(0).standard_normal(20)
    assert bits(_whole(np.repeat(losses, 10))[::10]) == bits(_whole(losses))


def test_one_evaluation_cannot_be_judged() -> None:
    assert np.isnan(_whole([3.0, 3.0])).all()
    assert np.isnan(_whole([])).all()


def test_a_non_finite_loss_scores_1_and_does_not_shape_the_forest() -> None:
    losses = (3.0 + 0.01 * np.random.default_rng(0).standard_normal(30)).tolist()
    scores = _whole([*losses[:10], math.inf, *losses[10:], math.inf])
    assert scores[[10, 31]].tolist() == [1.0, 1.0]
    assert bits(np.delete(scores, [10, 31])) == bits(_whole(losses))
    assert _whole([math.inf]).tolist() == [1.0]
    assert bits(_whole([3.0, math.inf])) == bits([math.nan, 1.0])


@pytest.mark.parametrize("huge", [1e39, -1e39, 1.7e308, -1.7e308])
def test_a_loss_beyond_single_precision_is_an_outlier_and_no_crash(huge: float) -> None:
    scores = _whole([3.0, 2.9, 2.8, 2.7, huge])
    assert scores.argmax() == 4


def test_an_evaluation_without_a_loss_is_none() -> None:
    scores = _whole([3.0, math.nan, 2.9, 9.0], evaluated=[True, True, True, True])
    assert scores[1] == scores[0]
    assert np.isfinite(scores).all()


# --- causal ----------------------------------------------------------------------------------------------------------


def test_it_is_silent_until_the_reference_is_complete_and_speaks_from_then_on() -> None:
    scores = CausalIsolationForest().score_run(healthy_observations())
    assert np.isnan(scores[:100]).all()
    assert not np.isnan(scores[100:]).any()


def test_the_reference_waits_for_its_records() -> None:
    sparse = healthy_observations(20)
    sparse.step = sparse.step * 30  # a record every 300 steps: 4 of them by step 1,000
    scores = CausalIsolationForest().score_run(sparse)
    # The first record has no change to the one before it; eight more are collected.
    assert np.isnan(scores[:9]).all()
    assert not np.isnan(scores[9:]).any()


def test_the_warm_up_is_no_part_of_the_reference() -> None:
    wild = healthy_observations()
    wild["training_loss"][1:24] *= np.linspace(4.0, 1.0, 23)
    wild["sigma_sq"][:25] *= 100.0
    disturbed = CausalIsolationForest().score_run(Observations(wild.step, wild.columns))
    assert bits(disturbed[100:]) == bits(CausalIsolationForest().score_run(healthy_observations())[100:])


@pytest.mark.parametrize(("column", "value"), [("training_loss", 30.0), ("sigma_sq", 100.0), ("delta_l", 5.0)])
def test_a_change_of_each_feature_raises_the_score(column: str, value: float) -> None:
    rows = slice(250, 400, 10)
    scores = CausalIsolationForest().score_run(_changed(column, rows, value))
    healthy = CausalIsolationForest().score_run(healthy_observations())
    assert (scores[rows] > healthy[rows] + 0.005).all()
    assert bits(scores[:250]) == bits(healthy[:250])


def test_a_non_finite_record_is_no_part_of_the_reference() -> None:
    scores = CausalIsolationForest().score_run(_changed("sigma_sq", slice(30, 60), math.inf))
    assert (scores[30:60] == 1.0).all()
    assert np.isfinite(scores[100:]).all()
    assert np.nanmax(scores[100:]) < 0.8


@pytest.mark.parametrize("columns", [("sigma_sq",), ("delta_l",), ("sigma_sq", "delta_l")])
@pytest.mark.parametrize("seed", range(4))
def test_a_signal_that_stops_being_measured_is_no_anomaly(columns: tuple[str, ...], seed: int) -> None:
    observations = healthy_observations(seed=seed)
    measured = CausalIsolationForest().score_run(observations)[200:]
    for column in columns:
        observations[column][200:] = math.nan
    missing = CausalIsolationForest().score_run(Observations(observations.step, observations.columns))[200:]
    assert missing.mean() < measured.mean() + 0.05


def test_a_log_without_variance_can_be_watched_all_the_same() -> None:
    observations = healthy_observations()
    del observations.columns["sigma_sq"]
    observations["training_loss"][250] = 30.0
    scores = CausalIsolationForest().score_run(Observations(observations.step, observations.columns))
    assert np.nanargmax(scores) in (250, 251)


def test_numbers_beyond_single_precision_are_judged_and_no_crash() -> None:
    for column in ("training_loss", "sigma_sq", "delta_l"):
        for value in (1e39, 1.7e308, -1.7e308):
            scores = CausalIsolationForest().score_run(_changed(column, 250, value))
            assert np.isfinite(scores[100:]).all()


# --- ecod ------------------------------------------------------------------------------------------------------------
# PyOD's ECOD, one record at a time; here where pyod is installed (extra ``baselines``).


def test_without_pyod_it_is_not_registered() -> None:
    code = "import sys; sys.modules['pyod'] = None; from rmetric.detectors import DETECTORS; print(*DETECTORS)"
    names = printed_by(code).split()
    assert "ecod" not in names
    assert "one_class_svm" in names


def test_each_record_is_judged_as_pyod_judges_it_alone() -> None:
    models = pytest.importorskip("pyod.models.ecod", reason="needs the extra 'baselines'")
    observations = healthy_observations(200)
    features = RunFeatures()
    rows = np.array([features.update(observation) for observation in observations])
    theirs = models.ECOD().fit(rows[25:100])
    expected = [theirs.decision_function(row[None])[0] / theirs.threshold_ for row in rows[100:]]
    scores = make_detector("ecod").score_run(observations)
    assert np.isnan(scores[:100]).all()
    assert scores[100:] == pytest.approx(expected)
    assert "ecod" in DETECTORS


def test_the_future_of_a_long_run_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyod", reason="needs the extra 'baselines'")
    observations = healthy_observations()
    ecod = make_detector("ecod")
    expected = ecod.score_run(observations)
    monkeypatch.setattr("rmetric.detectors.novelty.ECOD_BLOCK", 7)
    assert bits(ecod.score_run(observations)) == bits(expected)
    observations["sigma_sq"][300:] *= 50.0
    wild = ecod.score_run(Observations(observations.step, observations.columns))
    assert bits(wild[:300]) == bits(expected[:300])
    assert wild[300:].mean() > expected[300:].mean()


# --- half space trees ------------------------------------------------------------------------------------------------
# river's half-space trees as a detector, and their state there and back.


def test_the_score_is_that_of_rivers_own_recipe() -> None:
    observations = healthy_observations(250)
    scaler, trees, features = MinMaxScaler(), HalfSpaceTrees(window_size=100, seed=42), RunFeatures()
    expected = [math.nan]
    for observation in list(observations):
        row = dict(zip(READS, features.update(observation), strict=True))
        if math.isnan(row["training_loss"]):
            continue  # the first record has no change to the one before it
        score = trees.score_one(scaler.transform_one(row)) or math.nan
        expected.append(score)
        if not score > HalfSpaceTreesDetector().threshold:
            scaler.learn_one(row)
            trees.learn_one(scaler.transform_one(row))
    scores = HalfSpaceTreesDetector().score_run(observations)
    assert bits(scores) == bits(expected)
    assert np.isnan(scores).sum() == 101


@pytest.mark.parametrize(("column", "value"), [("training_loss", 30.0), ("sigma_sq", 100.0), ("delta_l", 5.0)])
def test_an_outlier_scores_higher_and_is_not_learned(column: str, value: float) -> None:
    observations, healthy = healthy_observations(), healthy_observations()
    observations[column][250] = value
    changed = HalfSpaceTreesDetector(threshold=0.9).score_run(Observations(observations.step, observations.columns))
    usual = HalfSpaceTreesDetector(threshold=0.9).score_run(healthy)
    assert changed[250] > usual[250]
    if column == "sigma_sq":  # the other two leave a trace in the next record's features
        assert bits(changed[251:]) == bits(usual[251:])


@pytest.mark.parametrize("seen", [0, 1, 30, 101, 150, 350])
def test_a_restored_detector_goes_on_with_the_same_scores(seen: int) -> None:
    resumed, straight = resumed_and_straight(HalfSpaceTreesDetector, list(healthy_observations()), seen)
    assert state_of(resumed) == state_of(straight)


# --- one class svm ---------------------------------------------------------------------------------------------------
# The one-class SVM: scikit-learn's boundary, in a score that tells far from farther.


def _features(observations: Observations) -> np.ndarray:
    features = RunFeatures()
    return np.array([features.update(observation) for observation in observations])


def test_zero_is_scikit_learns_own_boundary() -> None:
    observations = healthy_observations()
    rows = _features(observations)
    reference = rows[25:100]  # steps 260 to 1,000
    scaler = RobustScaler().fit(reference)
    machine = OneClassSVM(nu=0.01).fit(scaler.transform(reference))
    theirs = machine.decision_function(scaler.transform(rows[100:]))
    scores = OneClassSvm().score_run(observations)
    assert np.isnan(scores[:100]).all()
    assert (scores[100:] > 0.0).tolist() == (theirs < 0.0).tolist()
    assert scores[100:].argsort().tolist() == (-theirs).argsort().tolist()


@pytest.mark.parametrize("column", ["training_loss", "sigma_sq", "delta_l"])
def test_what_lies_farther_out_scores_higher(column: str) -> None:
    scores = []
    for factor in (1.0, 1.5, 3.0, 10.0):
        observations = healthy_observations()
        observations[column][250] *= factor
        scores.append(OneClassSvm().score_run(Observations(observations.step, observations.columns))[250])
    assert sorted(scores) == scores
    assert np.isfinite(scores).all()
    assert scores[-1] > 5.0
