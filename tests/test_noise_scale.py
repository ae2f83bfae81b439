from __future__ import annotations

import math

import numpy as np
import pytest

from rmetric.signals import GradientNoiseScale
from rmetric.state import restore, state_of

PARTS = 8


def _steps(count: int, *, signal: float, noise: float, dimensions: int = 50, seed: int = 0) -> list[tuple]:
    """Norms of parts whose gradients are a fixed vector plus independent normal noise: B = noise²·d/|G|²."""
    rng = np.random.default_rng(seed)
    true = np.full(dimensions, signal / math.sqrt(dimensions))
    gradients_SPD = true + noise * rng.standard_normal((count, PARTS, dimensions))
    return [
        (np.linalg.norm(parts_PD, axis=1), float(np.linalg.norm(parts_PD.mean(axis=0)))) for parts_PD in gradients_SPD
    ]


def _last(steps: list[tuple], memory_steps: float = 1e9, factor: float = 1.0) -> float:
    scale, value = GradientNoiseScale(memory_steps), math.nan
    for norms, mean in steps:
        value = scale.update(norms * factor, mean * factor)
    return value


@pytest.mark.parametrize(("signal", "noise"), [(1.0, 0.5), (2.0, 0.1), (0.3, 0.2)])
def test_the_noise_scale_of_gradients_with_known_noise_is_found(signal: float, noise: float) -> None:
    known = noise**2 * 50 / signal**2
    assert _last(_steps(4000, signal=signal, noise=noise)) == pytest.approx(known, rel=0.05)


def test_both_estimates_are_those_of_the_paper() -> None:
    (norms, mean), = _steps(1, signal=1.0, noise=0.3)  # fmt: skip
    small, big = float(np.mean(norms**2)), mean**2
    squared_gradient = (PARTS * big - 1 * small) / (PARTS - 1)
    trace = (small - big) / (1 / 1 - 1 / PARTS)
    assert GradientNoiseScale().update(norms, mean) == pytest.approx(trace / squared_gradient, rel=1e-12)


def test_they_are_averaged_before_they_are_divided() -> None:
    steps = _steps(400, signal=1.0, noise=0.5)
    single = [GradientNoiseScale().update(norms, mean) for norms, mean in steps]
    assert abs(_last(steps) - 12.5) < 1.5
    assert not abs(np.nanmean(single) - 12.5) < 1.5  # the mean of the quotients is biased


def test_old_steps_fade() -> None:
    steps = _steps(300, signal=1.0, noise=0.1) + _steps(300, signal=1.0, noise=0.4, seed=1)
    assert _last(steps, memory_steps=30.0) == pytest.approx(8.0, rel=0.3)
    assert _last(steps) == pytest.approx(0.5 * (0.5 + 8.0), rel=0.2)


@pytest.mark.parametrize("factor", [2.0**16, 1e-12, 3.0])
def test_a_common_factor_changes_nothing(factor: float) -> None:
    steps = _steps(20, signal=1.0, noise=0.1)
    assert _last(steps, factor=factor) == pytest.approx(_last(steps), rel=1e-9)


def test_parts_that_agree_have_no_noise() -> None:
    assert GradientNoiseScale().update([2.0, 2.0, 2.0], 2.0) == 0.0


@pytest.mark.parametrize(
    ("norms", "mean", "reason"),
    [
        ([], 1.0, "single part"),
        ([1.0], 1.0, "single part"),
        ([1.0, 1.0], 0.0, "lost in its noise"),
        ([1.0, 1.0], 0.5, "lost in its noise"),
        ([1.0, 1.0], 1.5, "too small to be told"),
        ([1.0, math.nan], 1.0, "not finite"),
        ([1.0, math.inf], 1.0, "not finite"),
        ([1.0, 1.0], math.nan, "not finite"),
        ([1e200, 1e200], 1e200, "too large"),
    ],
)
def test_undefined_is_nan_with_its_reason(norms: list[float], mean: float, reason: str) -> None:
    scale = GradientNoiseScale()
    assert math.isnan(scale.update(norms, mean))
    assert reason in scale.reason


@pytest.mark.parametrize(("norms", "mean"), [([1.0, math.nan], 1.0), ([3.0], 3.0), ([1.0, 1.0], math.inf)])
def test_a_step_that_cannot_be_used_leaves_no_trace(norms: list[float], mean: float) -> None:
    scale, untouched = GradientNoiseScale(), GradientNoiseScale()
    for item in (scale, untouched):
        item.update([3.0, 4.0], 3.4)
    scale.update(norms, mean)
    assert scale.update([2.0, 2.5], 2.1) == untouched.update([2.0, 2.5], 2.1)
    assert scale.reason == ""


def test_it_goes_on_from_a_checkpoint_as_if_never_interrupted() -> None:
    steps = _steps(20, signal=1.0, noise=0.2)
    scale = GradientNoiseScale()
    for norms, mean in steps[:10]:
        scale.update(norms, mean)
    resumed = restore(GradientNoiseScale(), state_of(scale))
    assert [resumed.update(*step) for step in steps[10:]] == [scale.update(*step) for step in steps[10:]]


def test_a_memory_of_less_than_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match=r"at least 1, not 0\.5"):
        GradientNoiseScale(0.5)
