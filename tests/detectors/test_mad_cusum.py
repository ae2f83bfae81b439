"""The CUSUM by hand, and what it is to find: a shift too small for any single record."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmetric.detectors import MadCusum, first_alert
from rmetric.records import Observations


def _scores(losses: np.ndarray, **settings: float) -> np.ndarray:
    run = Observations(np.arange(len(losses)), {"training_loss": losses})
    return MadCusum(**settings).score_run(run)  # type: ignore[arg-type]


def _noisy(length: int = 300, seed: int = 0) -> np.ndarray:
    return 3.0 + 0.05 * np.random.default_rng(seed).standard_normal(length)


def test_the_sums_by_hand() -> None:
    losses = _noisy(80)
    mean = again = losses[0]
    deviations: list[float] = []
    above = below = 0.0
    expected = [math.nan]
    for loss in losses[1:]:
        lag = mean - again
        forecast = mean + lag + 0.2 / 0.8 * lag  # Brown, fading factor 0.2
        deviation = loss - forecast
        if len(deviations) < 30:
            expected.append(math.nan)
        else:
            middle = np.median(deviations[-40:])
            z = (deviation - middle) / (1.4826 * np.median(np.abs(deviations[-40:] - middle)))
            above, below = max(0.0, above + z - 0.5), max(0.0, below - z - 0.5)
            expected.append(max(above, below))
        deviations.append(deviation)
        mean += 0.2 * (loss - mean)
        again += 0.2 * (mean - again)
    assert _scores(losses, memory=9, window=40) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("shift", [0.15, -0.15])
def test_a_shift_either_way_adds_up(shift: float) -> None:
    losses = _noisy(340)
    calm = _scores(losses, memory=20)
    losses[300:] += shift  # three standard deviations
    shifted = _scores(losses, memory=20)
    assert np.nanmax(calm) < 5.0
    assert first_alert(np.arange(300, 340), shifted[300:], 5.0) in range(301, 310)  # not at once


def test_a_loss_that_falls_as_it_should_is_no_drift() -> None:
    falling = 2.0 + 2.0 * np.exp(-np.arange(600) / 150.0)
    noise = 0.01 * np.random.default_rng(1).standard_normal(600)
    assert np.nanmean(_scores(falling + noise) > 5.0) < 0.05


def test_one_outlier_fills_the_sums_for_a_while_only() -> None:
    losses = _noisy(300)
    losses[150] = 1e6
    scores = _scores(losses)
    assert scores[150] >= 9.5
    assert scores[200:].max() < scores[150]
    losses[150] = 1e3
    assert scores[151:] == pytest.approx(_scores(losses)[151:], rel=1e-3, abs=1e-3)


def test_a_non_finite_loss_alerts_and_is_forgotten() -> None:
    losses = _noisy(100)
    scores = _scores(np.insert(losses, 60, math.inf))
    assert scores[60] == math.inf
    assert np.array_equal(np.delete(scores, 60), _scores(losses), equal_nan=True)
