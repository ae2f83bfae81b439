"""OLMo's rule: six standard deviations above the mean of the last 128 values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmetric.detectors import OlmoSpike
from rmetric.records import Observations
from tests.helpers import bits


def _run(loss: np.ndarray, norm: np.ndarray | None = None) -> Observations:
    columns = {"training_loss": loss} | ({} if norm is None else {"grad_norm": norm})
    return Observations(np.arange(1, len(loss) + 1), columns)


def _noisy(length: int = 400, seed: int = 0) -> np.ndarray:
    return 3.0 + 0.05 * np.random.default_rng(seed).standard_normal(length)


def test_the_score_is_the_distance_from_the_mean_of_the_window_before() -> None:
    loss = _noisy()
    scores = OlmoSpike().score_run(_run(loss))
    assert np.isnan(scores[:128]).all()
    expected = [(loss[i] - loss[i - 128 : i].mean()) / loss[i - 128 : i].std() for i in range(128, 400)]
    assert scores[128:] == pytest.approx(expected)


def test_the_larger_of_the_two_scores_counts() -> None:
    loss, norm = _noisy(), _noisy(seed=1)
    loss[200], norm[300] = 6.0, 9.0
    both = OlmoSpike().score_run(_run(loss, norm))
    alone = [OlmoSpike().score_run(_run(column)) for column in (loss, norm)]
    assert bits(both) == bits(np.fmax(*alone))
    assert [*np.flatnonzero(both > OlmoSpike().threshold)] == [200, 300]


def test_a_value_that_is_not_finite_alerts_and_does_not_blind_the_window() -> None:
    loss = _noisy()
    broken = np.insert(loss, 200, math.inf)
    scores = OlmoSpike().score_run(_run(broken))
    assert scores[200] == math.inf
    assert bits(np.delete(scores, 200)) == bits(OlmoSpike().score_run(_run(loss)))


def test_a_window_that_stands_still_says_nothing() -> None:
    assert OlmoSpike().score_run(_run(np.array([2.0] * 128 + [3.0])))[-1] == 0.0


def test_the_blocks_of_a_long_run_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = OlmoSpike().score_run(_run(_noisy()))
    monkeypatch.setattr("rmetric.detectors.spike_rules.OLMO_BLOCK", 50)
    assert bits(OlmoSpike().score_run(_run(_noisy()))) == bits(expected)
