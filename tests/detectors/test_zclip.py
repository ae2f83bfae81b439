"""ZClip's statistic against its update rule, written out with numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmetric.detectors import ZClip
from rmetric.records import Observations


def _scores(norms: list[float] | np.ndarray, **settings: float) -> np.ndarray:
    column = np.asarray(norms, dtype=float)
    return ZClip(**settings).score_run(Observations(np.arange(1, len(column) + 1), {"grad_norm": column}))  # type: ignore[arg-type]


def _noisy(length: int, seed: int = 0) -> np.ndarray:
    return 1.0 + 0.1 * np.random.default_rng(seed).random(length)


def test_the_statistic_follows_the_published_update_rule() -> None:
    norms = _noisy(120)
    norms[[60, 61]] = 3.0, 8.0
    mean, variance = norms[:25].mean(), norms[:25].var()
    expected = [math.nan] * 25
    for norm in norms[25:]:
        deviation = np.sqrt(variance)
        z = (norm - mean) / (deviation + 1e-6)
        expected.append(z)
        if z > 2.5:
            norm = mean + 2.5 * deviation / (z / 2.5)
        mean = 0.97 * mean + 0.03 * norm
        variance = 0.97 * variance + 0.03 * (norm - mean) ** 2
    assert _scores(norms) == pytest.approx(expected, rel=1e-9, nan_ok=True)


def test_a_spike_alerts_and_hardly_moves_its_own_bar() -> None:
    norms = _noisy(120)
    norms[60] = 50.0
    scores = _scores(norms)
    assert scores[60] > 100.0
    assert scores[61:] == pytest.approx(_scores(np.delete(norms, 60))[60:], abs=0.2)


def test_a_non_finite_norm_scores_infinity_and_is_forgotten() -> None:
    norms = _noisy(80)
    scores = _scores(np.insert(norms, [10, 50], math.inf))
    assert scores[[10, 51]].tolist() == [math.inf] * 2
    assert np.array_equal(np.delete(scores, [10, 51]), _scores(norms), equal_nan=True)


def test_a_huge_norm_while_warming_up_does_not_blind_it_for_good() -> None:
    norms = np.concatenate([[1e300], _noisy(25_000)])
    norms[-1] = 10.0
    assert _scores(norms)[-1] > 2.5
