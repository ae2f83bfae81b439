"""The time of a step, by clocks that are no stopwatch."""

import math

import pytest

from rmetric.monitor.step_clock import StepClock


def test_a_clock_that_is_set_back_gives_that_step_no_time() -> None:
    now = iter([0.0, 1.0, -99.0, -98.0, 2.0])
    clock = StepClock(lambda: next(now))
    times = []
    for _ in range(5):
        clock.tick()
        times.append(clock.read())
    assert math.isnan(times[0]) and math.isnan(times[2])
    assert [times[1], times[3], times[4]] == [1.0, 1.0, 100.0]  # set forward it cannot be told from a long step


def test_the_mean_of_several_steps_leaves_out_the_one_in_which_it_was_set_back() -> None:
    now = iter([0.0, 1.0, -99.0, -96.0])
    clock = StepClock(lambda: next(now))
    for _ in range(4):
        clock.tick()
    assert clock.read() == pytest.approx(2.0)


def test_what_holds_up_the_process_is_no_part_of_anybodys_step() -> None:
    now = 0.0
    clocks = [StepClock(lambda: now), StepClock(lambda: now)]
    for clock in clocks:
        clock.tick()
    with StepClock.all_paused():
        now += 5.0
    now += 0.5
    for clock in clocks:
        clock.tick()
        assert clock.read() == pytest.approx(0.5)
