"""Batches that come again, and inputs of another scale or centre."""

from __future__ import annotations

import pytest

from rmetric.advice import CENTRE, INPUTS
from rmetric.monitor.changes import SettingChange
from rmetric.monitor.loop_invariants import LoopInvariants
from rmetric.monitor.loop_invariants.base import HELD, HELD_AGAIN
from tests.monitor.loop_invariants.common import told_of


def test_an_epoch_of_which_every_tenth_batch_is_looked_at_from_some_step_on_has_not_become_shorter() -> None:
    invariants = LoopInvariants()
    assert not any(invariants.update({"batch_key": float(step % 40)}) for step in range(80))
    invariants.stand_for_more_steps()
    assert not any(invariants.update({"batch_key": float(step % 40)}) for step in range(80, 1000, 10))


def test_inputs_with_heavy_tails_are_no_news() -> None:
    scales = [1.0] * HELD + [10.0] + [1.0] * HELD + [100.0, 200.0]
    assert told_of({"input_scale": scale} for scale in scales) == []


@pytest.mark.parametrize(("held", "told"), [(HELD_AGAIN - 1, False), (HELD_AGAIN, True)])
def test_one_odd_batch_does_not_end_the_check_of_inputs(held: int, told: bool) -> None:
    scales = [1.0] * HELD + [5.0] + [1.0] * held + [16.0] * 4
    assert told_of({"input_scale": scale} for scale in scales) == [SettingChange(INPUTS, 1.0, 16.0)] * told


@pytest.mark.parametrize(("held", "told"), [(2 * HELD_AGAIN - 1, False), (2 * HELD_AGAIN, True)])
def test_what_was_broken_twice_by_chance_must_hold_for_twice_as_long(held: int, told: bool) -> None:
    scales = [*([1.0] * HELD + [5.0]) * 2, *[1.0] * held, 16.0, 16.0]
    assert len(told_of({"input_scale": scale} for scale in scales)) == told


def test_one_batch_that_came_again_does_not_hide_that_few_do_later() -> None:
    invariants = LoopInvariants()
    keys = [*range(100), 98, *range(100, 100 + HELD_AGAIN), *([1, 2, 3, 4] * 8)]
    found = [step for step, key in enumerate(keys) if invariants.update({"batch_key": float(key)})]
    assert found == [101 + HELD_AGAIN + 3 + 8]


@pytest.mark.parametrize("factor", [1 / 255, 1 / 3.1, 1 / 2.9, 2.9, 3.1, 255.0])
def test_inputs_of_another_scale_are_news_from_a_factor_of_three_on(factor: float) -> None:
    scales = [0.5] * HELD + [0.5 * factor] * 50
    far = not 1 / 3 <= factor <= 3
    assert told_of({"input_scale": scale} for scale in scales) == [SettingChange(INPUTS, 0.5, 0.5 * factor)] * far


@pytest.mark.parametrize(
    ("usual", "now", "news"),
    [
        ([0.0, 0.1], 0.7, True),  # the mean is not subtracted any more
        ([0.6, 0.5], -0.1, True),  # it is subtracted twice
        ([0.0, 0.1], 0.5, False),  # what an agent sees, as it learns
        ([-0.5, 0.5], 0.9, False),  # batches that differ much
        ([1.0, 1.0], 0.6, False),
    ],
)
def test_inputs_around_another_mean_are_news(usual: list[float], now: float, news: bool) -> None:
    shares = [*usual * (HELD // 2), *[now] * 4]
    found = told_of({"input_mean": 2.0 * share, "input_scale": 2.0} for share in shares)
    assert [change.setting for change in found] == [CENTRE] * news


def test_a_scale_that_grows_gradually_and_one_of_zero_or_infinity_are_no_news() -> None:
    scales = [1.05**step for step in range(200)] + [0.0, float("inf"), float("nan")] * 20
    assert told_of({"input_scale": scale} for scale in scales) == []
