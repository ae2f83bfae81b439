from __future__ import annotations

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from rmetric.simulation.dynamics import OVERFLOW_NATS, correlated, integrate, visible


def _one(kick: list[float], *, growth: float = 0.0):
    nothing = np.zeros((1, len(kick)))
    return integrate(np.array([kick]), nothing + growth, np.full(len(kick), 0.06), nothing, nothing, nothing)


def _by_the_formula(kick, growth, healing, jump, floor, floor_rate) -> tuple[list[float], list[float]]:
    x = f = 0.0
    displacement, relative = [], []
    for k, g, h, j, target, r in zip(kick, growth, healing, jump, floor, floor_rate, strict=True):
        x = x + k
        x = min(x * math.exp(g - h / (1.0 + x + (x / 3.0) ** 4)), 1e9)
        f = f + j + r * (target - f)
        displacement.append(x)
        relative.append(f)
    return displacement, relative


def test_it_integrates_the_equations_of_its_docstring() -> None:
    rng = np.random.default_rng(0)
    shape = (7, 300)
    kick = np.where(rng.random(shape) < 0.05, rng.exponential(0.5, shape), 0.0)
    growth, floor = rng.normal(0.02, 0.05, shape), rng.random(shape)
    healing, rate = rng.uniform(0.02, 0.06, 300), rng.uniform(0.0, 0.1, shape)
    jump = np.where(rng.random(shape) < 0.01, rng.random(shape), 0.0)
    got = integrate(kick, growth, healing, jump, floor, rate)
    for row in range(7):
        displacement, relative = _by_the_formula(kick[row], growth[row], healing, jump[row], floor[row], rate[row])
        assert got.displacement[row] == pytest.approx(displacement, rel=1e-9)
        assert got.floor[row] == pytest.approx(relative, rel=1e-9)


def test_a_run_does_not_depend_on_its_neighbours() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.random((5, 200)) * size for size in (0.1, 0.1, 0.01, 0.2, 0.05)]
    healing = np.full(200, 0.05)
    together = integrate(arrays[0], arrays[1], healing, *arrays[2:])
    for row in range(5):
        kick, growth, *others = (array[row : row + 1] for array in arrays)
        alone = integrate(kick, growth, healing, *others)
        assert np.array_equal(alone.displacement[0], together.displacement[row])
        assert np.array_equal(alone.floor[0], together.floor[row])


def test_a_small_excess_heals_at_the_healing_rate() -> None:
    excess = _one([1e-6] + [0.0] * 99).displacement[0]
    assert excess[1:] / excess[:-1] == pytest.approx(np.full(99, math.exp(-0.06)), rel=1e-5)


def test_a_large_excess_heals_more_slowly_and_a_collapse_not_at_all() -> None:
    kept = [_one([size] + [0.0] * 9).displacement[0, -1] / size for size in (0.01, 1.0, 5.0, 30.0)]
    assert kept == sorted(kept)
    assert kept[0] < 0.56
    assert kept[-1] > 0.999


@given(st.floats(0.0, 0.059))
def test_growth_below_the_healing_rate_still_heals(growth: float) -> None:
    excess = _one([1e-4] + [0.0] * 200, growth=growth).displacement[0]
    assert (np.diff(excess) < 0).all()


def test_growth_beyond_the_healing_rate_runs_away_to_a_bounded_number() -> None:
    excess = _one([1e-4] + [0.0] * 2000, growth=0.1).displacement[0]
    assert (np.diff(excess) >= 0).all()
    assert OVERFLOW_NATS < excess[-1] <= 1e9


def test_the_floor_is_approached_exponentially_and_left_again() -> None:
    steps = 400
    rate = np.full((1, steps), 0.02)
    floor = np.where(np.arange(steps) < 200, 0.3, 0.0)[None, :]
    nothing = np.zeros((1, steps))
    got = integrate(nothing, nothing, np.full(steps, 0.06), nothing, floor, rate).floor[0]
    assert got[:200] == pytest.approx(0.3 * (1 - 0.98 ** np.arange(1, 201)), rel=1e-9)
    assert (np.diff(got[199:]) < 0).all()


def test_correlated_noise_has_unit_variance_and_the_memory_it_is_given() -> None:
    noise = correlated(np.random.default_rng(0).standard_normal((40, 3000)), correlation_steps=5.0)
    assert noise.std() == pytest.approx(1.0, rel=0.03)
    assert noise[:, 0].std() == pytest.approx(1.0, rel=0.35)
    for lag in (1, 5):
        assert (noise[:, lag:] * noise[:, :-lag]).mean() == pytest.approx(math.exp(-lag / 5.0), abs=0.04)


def test_correlated_noise_leaves_its_draws_alone_and_knows_no_neighbours() -> None:
    draws = np.random.default_rng(0).standard_normal((3, 50))
    known = draws.copy()
    together = correlated(draws, 4.0)
    assert np.array_equal(draws, known)
    assert np.array_equal(correlated(draws[1:2], 4.0)[0], together[1])


@pytest.mark.parametrize("correlation_steps", [0.3, 3.2, 40.0])
@pytest.mark.parametrize("steps", [1, 600, 5001])
def test_correlated_noise_is_that_of_one_step_after_the_other(steps: int, correlation_steps: float) -> None:
    draws = np.random.default_rng(2).standard_normal((3, steps))
    remaining = math.exp(-1.0 / correlation_steps)
    expected = draws.copy()
    expected[:, 1:] *= math.sqrt(1.0 - remaining**2)
    for step in range(1, steps):
        expected[:, step] += remaining * expected[:, step - 1]
    assert np.array_equal(correlated(draws, correlation_steps), expected)


def test_a_displacement_shows_in_full_when_small_and_saturates_when_large() -> None:
    shown = visible(np.array([0.0, 1e-6, 1e-3, 1.0, 100.0, 1e9]), initial_loss=10.0)
    assert shown[0] == 0.0
    assert shown[1] == pytest.approx(1e-6, rel=1e-6)
    assert (np.diff(shown) > 0).all()
    assert shown[-1] == pytest.approx(12.0)
