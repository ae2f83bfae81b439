"""The one-class SVM: scikit-learn's boundary, in a score that tells far from farther."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.preprocessing import RobustScaler
from sklearn.svm import OneClassSVM

from rmetric.detectors import OneClassSvm
from rmetric.detectors.features import RunFeatures
from rmetric.records import Observations
from tests.helpers import bits, healthy_observations


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


def test_the_same_run_gives_the_same_scores() -> None:
    assert bits(OneClassSvm().score_run(healthy_observations())) == bits(
        OneClassSvm().score_run(healthy_observations())
    )
