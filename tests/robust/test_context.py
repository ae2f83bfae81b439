"""The context of a record: when records change their kind, and a loss above its own learning curve."""

import math

import numpy as np
import pytest

from rmetric.robust.context import Cadence, LearningCurve

# -- cadence


def changes(steps: list[int]) -> list[int]:
    cadence = Cadence()
    return [step for step in steps if cadence.changes(step)]


def test_a_change_of_the_interval_is_told_once() -> None:
    assert changes([*range(1, 101), *range(200, 2000, 100)]) == [200]
    assert changes([*range(100, 1100, 100), *range(1001, 1050)]) == [1001]


def test_a_record_that_is_missing_is_no_change() -> None:
    assert changes([1, 2, 3, 4, 5, 7, 8, 10, 11]) == []


def test_a_gap_is_told_at_its_end_and_at_the_next_record_no_more() -> None:
    assert changes([*range(1, 50), *range(150, 200)]) == [150]


@pytest.mark.parametrize("seed", range(3))
def test_where_intervals_are_irregular_records_become_others_hardly_ever(seed: int) -> None:
    steps = np.cumsum(np.random.default_rng(seed).integers(1, 51, 2000)).tolist()
    assert len(changes(steps)) <= 3
    assert changes(np.cumsum([1, 99] * 500).tolist()) == []


def test_a_rare_gap_is_told_each_time() -> None:
    assert changes([*range(1, 100), *range(200, 300), *range(400, 500)]) == [200, 400]


# -- learning curve


def scores(losses: np.ndarray, first_step: int = 1, every: int = 1) -> np.ndarray:
    curve = LearningCurve(window=96, warm_up=32)
    return np.array([curve.update(first_step + every * place, loss) for place, loss in enumerate(losses.tolist())])


def falling(length: int = 600, seed: int = 0) -> np.ndarray:
    """A power law and a batch's noise."""
    step = np.arange(1, length + 1)
    return 1.5 + 4.0 * step**-0.3 + np.random.default_rng(seed).normal(0.0, 0.1, length)


@pytest.mark.parametrize("seed", range(3))
def test_a_power_law_stays_near_its_line(seed: int) -> None:
    z = scores(falling(seed=seed))[72:]
    assert abs(np.mean(z)) < 0.35
    assert 0.6 < np.std(z) < 1.2


def test_the_first_score_comes_after_the_warm_up() -> None:
    assert np.flatnonzero(~np.isnan(scores(falling())))[0] == 32


def test_a_short_line_is_trusted_less_than_a_long_one() -> None:
    """Eight records share what their line has of the noise: their mean would scatter by more where it is short."""
    means = [[scores(falling(seed=seed))[end - 8 : end].mean() for seed in range(60)] for end in (48, 400)]
    assert np.std(means[0]) < np.std(means[1])


def test_a_loss_that_stops_falling_lies_above_its_line_at_once() -> None:
    stopped = falling()
    stopped[300:] += 0.2  # two scales, and no more than the loss had fallen by in the last 200 steps
    z = scores(stopped)
    assert np.mean(z[300:330]) > 0.8


def test_one_outlier_moves_the_next_scores_by_less_than_a_quarter() -> None:
    spoiled = falling()
    spoiled[300] = 50.0
    assert np.abs(scores(spoiled)[301:320] - scores(falling())[301:320]).max() < 0.25


def test_a_curve_that_bends_more_becomes_usual() -> None:
    step = np.arange(1, 601)
    bent = np.maximum(5.0 - 0.025 * step, 2.5) + np.random.default_rng(1).normal(0.0, 0.1, 600)
    assert np.mean(scores(bent)[200:]) < 0.6


def test_a_rising_line_is_not_drawn_on() -> None:
    rising = 2.0 + 0.01 * np.arange(400.0) + np.random.default_rng(2).normal(0.0, 0.02, 400)
    assert np.mean(scores(rising)[100:]) > 1.0


def test_a_run_that_began_long_ago_is_judged_as_well() -> None:
    losses = 2.0 + np.random.default_rng(3).normal(0.0, 0.1, 1000)
    z = scores(losses, first_step=10**9, every=10)[100:]
    assert np.isfinite(z).all()
    assert abs(np.mean(z)) < 0.2


def test_what_was_not_measured_leaves_no_trace() -> None:
    losses = falling(200)
    gaps = np.insert(losses, 150, math.nan)
    curve, other = (LearningCurve(window=96, warm_up=32) for _ in range(2))
    steps = np.insert(np.arange(1, 201), 150, 150)
    with_gap = [curve.update(int(step), loss) for step, loss in zip(steps, gaps.tolist(), strict=True)]
    without = [other.update(step, loss) for step, loss in enumerate(losses.tolist(), start=1)]
    assert math.isnan(with_gap[150])
    assert with_gap[151:] == without[150:]
    assert curve.update(201, math.inf) == math.inf


def test_a_loss_of_two_levels_is_usual() -> None:
    draw = np.random.default_rng(4)
    levels = np.where(draw.random(600) < 0.15, 4.5, 3.0) + draw.normal(0.0, 0.05, 600)
    assert np.quantile(scores(levels)[100:], 0.99) < 3.0


def test_a_loss_of_zero_raises_nothing() -> None:
    assert np.nanmax(scores(np.zeros(300))) == 0.0
