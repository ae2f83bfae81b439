"""The size of an update against the mean of the last ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmetric.detectors import UpdateRmsThreshold
from rmetric.records import Observations


def _scores(sizes: np.ndarray) -> np.ndarray:
    return UpdateRmsThreshold().score_run(Observations(np.arange(len(sizes)), {"update_rms": sizes}))


def test_the_score_is_the_ratio_to_the_moving_mean() -> None:
    sizes = 1e-4 * np.random.default_rng(0).uniform(0.9, 1.1, 200)
    scores = _scores(sizes)
    assert np.isnan(scores[:32]).all()
    expected = [sizes[i] / sizes[max(0, i - 64) : i].mean() for i in range(32, 200)]
    assert scores[32:] == pytest.approx(expected)


def test_the_bar_follows_a_schedule_and_an_outlier_does_not_raise_it() -> None:
    sizes = np.linspace(1e-4, 5e-4, 400)
    assert np.nanmax(_scores(sizes)) < 2.0
    sizes[300] *= 1000.0
    scores = _scores(sizes)
    assert scores[300] > 1000.0
    assert scores[301] > 0.9


def test_updates_that_begin_after_standing_still_alert() -> None:
    assert _scores(np.array([0.0] * 40 + [1e-4]))[[39, 40]].tolist() == [0.0, math.inf]
