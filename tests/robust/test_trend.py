"""The trend: taken out of the scale, out of the level where it exceeds the noise, and slow to believe a shift."""

import math

import numpy as np
import pytest

from rmetric.robust.reference import RobustTrend


def trend(**changes: float) -> RobustTrend:
    return RobustTrend(**{"window": 64, "warm_up": 48, "floor": 1e-6, "clip": 5.0, **changes})  # type: ignore[arg-type]


def scores(values: np.ndarray, **changes: float) -> np.ndarray:
    judge = trend(**changes)
    return np.array([judge.update(value) for value in values.tolist()])


def noise(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, 0.1, n)


def test_noise_without_a_trend_has_scores_of_one_scale() -> None:
    z = scores(2.0 + noise(2000))[64:]
    assert np.std(z) == pytest.approx(1.0, abs=0.15)
    assert abs(np.mean(z)) < 0.1


@pytest.mark.parametrize("slope", [-0.001, -0.01, -0.1])
def test_the_scale_is_that_of_the_noise_however_steep_the_signal_falls(slope: float) -> None:
    z = scores(5.0 + slope * np.arange(2000) + noise(2000))[128:]
    assert np.std(z) == pytest.approx(1.0, abs=0.2)
    # What is left of the lag is at most the margin of one scale.
    assert -1.4 < np.mean(z) < 0.1


def test_a_rising_signal_is_not_explained_away() -> None:
    assert np.mean(scores(5.0 + 0.01 * np.arange(400) + noise(400))[128:]) > 2.0


def test_a_lasting_shift_is_believed_after_half_a_window_and_not_before() -> None:
    values = 2.0 + noise(400)
    values[200:] += 0.4
    z = scores(values)
    assert np.mean(z[200:228]) > 3.0
    assert np.mean(z[300:]) < 0.5


def test_outliers_never_raise_their_own_bar() -> None:
    values = 2.0 + noise(300)
    values[200:210] = 1e6
    z = scores(values)
    assert (z[200:210] > 1e6).all()
    assert np.abs(z[210:230]).max() < 5.0


def test_infinity_passes_nan_waits_and_neither_leaves_a_trace() -> None:
    one, other = trend(), trend()
    for value in (2.0 + noise(100)).tolist():
        one.update(value)
        other.update(value)
    assert one.update(math.inf) == math.inf
    assert math.isnan(one.update(math.nan))
    assert one.update(2.1) == other.update(2.1)


def test_the_warm_up_is_as_long_as_it_says() -> None:
    assert np.flatnonzero(~np.isnan(scores(2.0 + noise(80))))[0] == 48
