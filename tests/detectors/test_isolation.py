"""Compiled isolation trees beside scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import IsolationForest

from rmetric.detectors import isolation
from tests.helpers import bits


def _samples(count: int, features: int, kind: str) -> np.ndarray:
    values = np.random.default_rng(count).normal(size=(count, features))
    match kind:
        case "rounded":
            return np.round(values)
        case "constant":
            values[:, 0] = 1.5
        case "extreme":
            values[::3] *= 1e6
    return values


@pytest.mark.parametrize("features", [1, 3])
@pytest.mark.parametrize("kind", ["normal", "rounded", "constant", "extreme"])
@pytest.mark.parametrize("count", [1, 2, 3, 40, 256, 300])
def test_scores_are_those_of_scikit_learn_to_the_bit(count: int, kind: str, features: int) -> None:
    samples = _samples(count, features, kind)
    others = np.concatenate([samples, 3.0 * _samples(30, features, "normal")])
    known = -IsolationForest(n_estimators=12, random_state=0).fit(samples).score_samples(others)
    assert bits(isolation.anomaly(isolation.fit(samples, 12), others)) == bits(known)
