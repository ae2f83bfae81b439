"""Schedules that go on faster, and rates that leap."""

from __future__ import annotations

import math

import pytest

from rmetric.advice import RATE, SCHEDULE
from rmetric.monitor.changes import SettingChange
from rmetric.monitor.loop_invariants.base import HELD
from tests.monitor.loop_invariants.common import told_of


@pytest.mark.parametrize("times", [1.0, 1.5, -1.0, 0.0, 2.0, 3.0])
@pytest.mark.parametrize("every", [1, 10])
def test_a_schedule_that_goes_a_whole_number_of_times_as_fast_is_news(times: float, every: int) -> None:
    steps = range(every, 200 * every, every)
    onset = 100 * every
    rates = [1e-3 - 1e-7 * (min(step, onset) + times * max(step - onset, 0)) for step in steps]
    found = told_of({"step": float(step), "learning_rate": rate} for step, rate in zip(steps, rates, strict=True))
    assert found == ([SettingChange(SCHEDULE, 1.0, times)] if times > 1.5 else [])


@pytest.mark.parametrize(
    ("factor", "steps", "told"), [(2.9, 50, 0), (10.0, 50, 1), (10.0, 1, 0), (math.nan, 50, 0), (0.1, 50, 0)]
)
def test_a_rate_that_leaps_and_stays_is_news(factor: float, steps: int, told: int) -> None:
    rates = [1e-3] * 2 * HELD + [1e-3 * factor] * steps + [1e-3] * HELD
    assert told_of({"learning_rate": rate} for rate in rates) == [SettingChange(RATE, 1e-3, 1e-3 * factor)] * told
