"""Gradients that are clipped to another norm, or no more."""

from __future__ import annotations

import math

import pytest

from rmetric.advice import CLIPPING
from rmetric.monitor.changes import SettingChange
from rmetric.monitor.loop_invariants.base import HELD
from tests.monitor.loop_invariants.common import told_of


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (0.25, []),
        (0.5, []),
        (0.05, [SettingChange(CLIPPING, 1.0, 0.2)]),
        (1.0, [SettingChange(CLIPPING, 1.0, "none at 4")]),
        (4.0, [SettingChange(CLIPPING, 1.0, "none, but lengthening to 16")]),
    ],
)
def test_another_norm_of_clipping_is_news_from_a_factor_of_three_on(left: float, told: list[SettingChange]) -> None:
    usual, after = {"grad_norm": 4.0, "gradient_left": 0.25}, {"grad_norm": 4.0, "gradient_left": left}
    assert told_of([usual] * (HELD + 1) + [after] * 5) == told


def test_gradients_that_are_not_longer_than_what_was_clipped_may_be_left_alone() -> None:
    clipped, short = {"grad_norm": 4.0, "gradient_left": 0.25}, {"grad_norm": 0.5, "gradient_left": 1.0}
    assert told_of(([clipped] * 3 + [short] * 3) * 20) == []


def test_a_first_gradient_that_is_clipped_is_longer_than_what_was_left_alone() -> None:
    alone, spike = {"grad_norm": 0.1, "gradient_left": 1.0}, {"grad_norm": 100.0, "gradient_left": 0.01}
    assert told_of([alone] * 2 * HELD + [spike] * 4 + [alone] * HELD) == []


@pytest.mark.parametrize("broken", [math.nan, math.inf, 0.0])
def test_clipping_is_not_judged_where_a_norm_is_none(broken: float) -> None:
    usual = {"grad_norm": 4.0, "gradient_left": 0.25}
    assert told_of([usual] * 2 * HELD + [{"grad_norm": broken, "gradient_left": math.nan}] * 4 + [usual] * 4) == []
