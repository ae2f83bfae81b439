"""A shift of the level that lasts is a difference; two seeds that wander apart, and clipped gradients, are not."""

from __future__ import annotations

import numpy as np
import pytest

from rmetric.comparison.level_shift import level_shift
from tests.comparison.test_compare import compared
from tests.diagnosis.runs import losses, norms, run_of

DEVIATION = 0.02 * np.sqrt(2.0)
"""Standard deviation of the differences of two losses."""


@pytest.mark.parametrize(
    ("deviations", "step", "records"), [(2.0, 1000, 11_000), (2.0, 5000, 6000), (3.0, 1000, 2000), (-3.0, 700, 1400)]
)
def test_a_shift_of_the_level_that_lasts_is_a_difference(deviations: float, step: int, records: int) -> None:
    loss = losses(records, 2) + np.where(np.arange(records) >= step, deviations * DEVIATION, 0.0)
    found = compared(run_of(losses(records, 0)), run_of(loss))
    (difference,) = found.differences
    assert abs(difference.step - step) <= 8
    assert difference.shift == pytest.approx(deviations * DEVIATION, rel=0.3)
    assert difference.b - difference.a == pytest.approx(difference.shift, abs=0.5 * DEVIATION)
    assert f"has moved by {difference.shift:+.2g} for so long at least" in str(found)


def test_a_shift_that_ends_after_thousands_of_records_is_a_difference() -> None:
    steps = np.arange(12_000)
    loss = losses(12_000, 2) + np.where((steps >= 2000) & (steps < 7000), 2.0 * DEVIATION, 0.0)
    found = compared(run_of(losses(12_000, 0)), run_of(loss)).first
    assert found is not None
    assert abs(found.step - 2000) <= 8


def test_a_slow_shift_is_a_difference() -> None:
    slowly = np.clip((np.arange(11_000) - 2000) / 1000, 0.0, 1.0)
    found = compared(run_of(losses(11_000, 0)), run_of(losses(11_000, 2) + 2.0 * DEVIATION * slowly)).first
    assert found is not None
    assert 1900 < found.step < 3100


def test_what_passes_soon_is_no_shift() -> None:
    noise = np.random.default_rng(0).normal(size=4000)
    assert level_shift(noise + np.where((np.arange(4000) // 200) == 10, 2.0, 0.0), 1e-6) is None


@pytest.mark.parametrize("step_of_wander", [0.0, 0.01, 0.1, 10.0])
def test_seeds_that_wander_apart_are_alike(step_of_wander: float) -> None:
    found = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        values = rng.normal(size=3000) + step_of_wander * np.cumsum(rng.normal(size=3000))
        growing = np.exp(np.minimum(np.arange(3000) / 100, 14)) * 1e-6
        found += (level_shift(values, 1e-9) is not None) + (level_shift(growing * values, 1e-9) is not None)
    assert found <= 1


def test_gaps_and_numbers_that_are_not_finite_do_not_move_a_shift() -> None:
    values = np.random.default_rng(0).normal(size=3000) + np.where(np.arange(3000) >= 1500, 3.0, 0.0)
    gaps = np.insert(values, np.arange(0, 3000, 3), np.nan)
    shift, later = level_shift(values, 1e-6), level_shift(np.append(gaps, np.inf), 1e-6)
    assert shift is not None and later is not None
    assert (shift.begin, later.begin, later.shift) == (1500, 2001, shift.shift)
    for none in (np.zeros(3000), np.full(3000, np.nan), values[:500], np.empty(0)):
        assert level_shift(none, 1e-6) is None
    assert level_shift(1e306 * values, 1e-6) is not None


def test_the_output_says_how_far_runs_that_are_alike_lie_apart() -> None:
    one, other = losses(2000, 0), losses(2000, 2) + 0.5 * DEVIATION
    found = compared(run_of(one, norms(2000, 1)), run_of(other, norms(2000, 3)))
    assert set(found.alike) == set(found.late) == {"training_loss", "grad_norm"}
    mean, noise = found.late["training_loss"]
    assert noise == pytest.approx(np.std(np.diff(other - one)) / np.sqrt(2.0), rel=0.2)
    assert mean == pytest.approx(np.mean((other - one)[1000:]))
    assert f"in the mean of the last half (noise of one record): training loss {mean:+.2g} (" in str(found)
    assert found.to_dict()["late"]["grad_norm"].keys() == {"mean", "noise"}
    same = compared(run_of(one), run_of(one))
    assert (same.alike, same.late) == (("training_loss",), {})


CLIP = float(np.quantile(norms(1500), 0.3))


@pytest.mark.parametrize("falls", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("noise", [1e-6, 1e-5, None])
def test_clipped_gradient_norms_are_alike(noise: float | None, falls: float) -> None:
    steps = np.arange(1500) / 1500
    for seed in range(4):
        rng = np.random.default_rng(seed)
        one = norms(1500, seed) * np.exp(-falls * steps)
        almost = (
            one * (1.0 + noise * rng.normal(size=1500)) if noise else norms(1500, seed + 99) * np.exp(-falls * steps)
        )
        clipped = (np.minimum(norm, CLIP) for norm in (one, almost))
        runs = (run_of(losses(1500, number), norm) for number, norm in enumerate(clipped))
        assert compared(*runs).first is None


def test_clipped_gradient_norms_differ_where_one_is_not_clipped_any_more() -> None:
    one, other = np.minimum(norms(1500), 0.5), np.minimum(norms(1500, 3), 0.5)
    other[700:] *= 0.5
    found = compared(run_of(losses(1500, 0), one), run_of(losses(1500, 2), other)).first
    assert found is not None
    assert found.step == 700
