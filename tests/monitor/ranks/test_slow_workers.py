"""Which workers are slow by themselves, from their times alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmetric.monitor.ranks.worker_times import SlowWorkers, WorkerTimes

USUAL = [0.03, 0.03, 0.03]


def after_some_steps() -> SlowWorkers:
    workers = SlowWorkers(2)
    assert not any(workers.update(np.array([USUAL, USUAL])) for _ in range(30))
    return workers


def test_a_worker_whose_single_step_is_slow_is_named() -> None:
    (report,) = after_some_steps().update(np.array([USUAL, [0.33, 0.03, 0.03]]))
    assert (report.worker, report.phase) == (1, "input")


@pytest.mark.parametrize("steps", [1, 100])
def test_a_worker_that_may_have_waited_for_another_is_not(steps: int) -> None:
    workers = after_some_steps()
    assert not any(workers.update(np.array([[math.nan, 0.03, 0.03], [0.33, 0.03, 0.03]])) for _ in range(steps))
    assert len(workers.update(np.array([USUAL, [0.33, 0.03, 0.03]]))) == 1  # the level is what it was


def test_the_pace_of_other_phases_is_judged_all_the_same() -> None:
    workers = after_some_steps()
    found = [workers.update(np.array([[math.nan, 0.03, 0.03], [0.33, 0.06, 0.03]])) for _ in range(32)]
    assert [(report.worker, report.phase) for reports in found for report in reports] == [(1, "forward")]


def test_a_step_time_is_settled_when_the_inputs_of_its_own_step_are_known() -> None:
    times, late = WorkerTimes(2, lag=0), WorkerTimes(2, lag=2)
    assert times.settled_s(10, 1.0, np.array([0.1, 0.1])) == [1.0]
    assert np.isnan(times.settled_s(11, 2.0, np.array([0.1, math.nan]))).tolist() == [True]
    found = [late.settled_s(step, float(step), np.array([math.nan if step == 13 else 0.1])) for step in range(10, 17)]
    assert found[:3] == [[], [], [10.0]]
    assert np.isnan(found[3:6]).all()  # what is known in step 13 is of step 11
    assert found[6] == [14.0]
