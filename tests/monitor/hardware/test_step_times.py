from __future__ import annotations

import json
import math
import random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from rmetric.monitor.hardware import HardwareReport, StepTimes
from rmetric.monitor.hardware.step_times import WINDOW
from rmetric.state import restore, state_of


def reports(times: StepTimes, steps_s: list[float]) -> list[HardwareReport]:
    return [report for seconds in steps_s if (report := times.update(seconds)) is not None]


def healthy(steps: int, level_s: float = 0.1, seed: int = 0) -> list[float]:
    """±20 % noise, and one step in twenty takes half as long again."""
    generator = random.Random(seed)
    return [level_s * generator.uniform(0.8, 1.2) * (1.5 if generator.random() < 0.05 else 1.0) for _ in range(steps)]


def test_healthy_noise_is_not_reported() -> None:
    for level_s in (0.002, 0.08, 5.0):
        assert reports(StepTimes(), healthy(5_000, level_s)) == []


def test_a_slow_step_is_a_straggler_and_a_very_slow_one_a_stall() -> None:
    times = StepTimes(worker=2)
    assert reports(times, healthy(100)) == []
    slow, stalled = times.update(0.5), times.update(4.0)
    assert (slow.component, slow.kind, slow.worker) == ("straggler", "correctable", 2)
    assert (stalled.component, stalled.kind) == ("stall", "correctable")
    assert "0.500 s" in slow.details


def test_many_medians_without_a_second_are_no_stall() -> None:
    times = StepTimes()
    reports(times, healthy(100, 0.01))
    report = times.update(0.9)
    assert report.component == "straggler"


def test_an_excess_that_is_not_worth_a_report_is_not_reported() -> None:
    times = StepTimes()
    reports(times, healthy(100, 0.002))
    assert times.update(0.09) is None
    assert times.update(0.11) is not None


def test_nothing_is_reported_during_the_warm_up_and_compilation_does_not_raise_the_bar() -> None:
    times = StepTimes()
    assert reports(times, [30.0, 20.0, *healthy(14)]) == []
    assert times.update(0.5) is not None


def test_an_outlier_never_raises_its_own_bar() -> None:
    times = StepTimes()
    reports(times, healthy(100))
    assert all(times.update(50.0) is not None for _ in range(20))
    assert times.level_s < 0.2


def test_a_lasting_slow_down_is_reported_and_then_the_new_level() -> None:
    times = StepTimes()
    reports(times, healthy(100))
    assert 16 <= len(reports(times, healthy(500, 0.3))) <= 32
    assert reports(times, healthy(500, 0.3, seed=1)) == []


def test_times_of_very_different_length_have_a_higher_bar() -> None:
    generator = random.Random(0)
    steps_s = [generator.lognormvariate(0.0, 0.5) for _ in range(10_000)]
    found = len(reports(StepTimes(), steps_s))
    assert 0 < found < 100
    assert sum(seconds > 2.0 for seconds in steps_s) > 5 * found


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf, -1.0])
def test_what_is_no_time_is_ignored(broken: float) -> None:
    times, untouched = StepTimes(), StepTimes()
    for seconds in healthy(100):
        times.update(seconds)
        assert times.update(broken) is None
        untouched.update(seconds)
    assert state_of(times) == state_of(untouched)


def test_steps_that_take_no_time_by_the_clock_are_a_level() -> None:
    times = StepTimes()
    assert reports(times, [0.0] * 50) == []
    report = times.update(2.0)
    assert report.component == "stall"


@given(st.integers(0, 3 * WINDOW), st.randoms())
def test_the_level_is_the_median_of_the_window(steps: int, generator: random.Random) -> None:
    steps_s = [generator.uniform(0.0, 0.1) for _ in range(steps)]
    times = StepTimes()  # nothing exceeds 0.1 s, so nothing is clipped
    for seconds in steps_s:
        times.update(seconds)
    if steps_s:
        recent = sorted(steps_s[-WINDOW:])
        assert times.level_s == recent[len(recent) // 2]
    else:
        assert math.isnan(times.level_s)


def test_nothing_grows_with_the_run() -> None:
    times = StepTimes()
    reports(times, healthy(10_000))
    assert len(json.dumps(state_of(times))) < 5_000


def test_resuming_from_plain_values_gives_the_same_reports() -> None:
    steps_s = [seconds * (6.0 if step % 31 == 0 else 1.0) for step, seconds in enumerate(healthy(400))]
    whole = StepTimes()
    expected = [whole.update(seconds) for seconds in steps_s]
    first = StepTimes()
    got = [first.update(seconds) for seconds in steps_s[:217]]
    second = restore(StepTimes(), json.loads(json.dumps(state_of(first))))
    got += [second.update(seconds) for seconds in steps_s[217:]]
    assert got == expected
    assert sum(report is not None for report in expected) > 5
