"""What is everyday in a run is no surprise; and no fault is its own excuse."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmetric.robust.context import APART_STEPS, Habit
from rmetric.state import restore, state_of

RECORDS = st.lists(st.tuples(st.integers(1, 30), st.sampled_from([0.0, 0.0, 0.3, 1.0, 3.0, math.inf])), min_size=1)


def tempered(records: list[tuple[int, float]], first: int = 1) -> list[float]:
    habit, step, found = Habit(), first, []
    habit.temper(first, 0.0)
    for gap, surprise in records:
        step += gap
        found.append(habit.temper(step, surprise))
    return found


@given(RECORDS)
def test_a_habit_takes_off_and_never_adds(records):
    for (_, surprise), left in zip(records, tempered(records), strict=True):
        assert 0.0 <= left <= surprise
        assert (left == math.inf) == (surprise == math.inf)


@given(RECORDS)
def test_records_without_a_surprise_may_be_left_out(records):
    steps, step = [], 1
    for gap, surprise in records:
        step += gap
        steps.append((step, surprise))
    sparse = Habit()
    sparse.temper(1, 0.0)
    told = [sparse.temper(at, surprise) for at, surprise in steps if surprise]
    assert told == [left for (_, surprise), left in zip(records, tempered(records), strict=True) if surprise]


def test_a_run_like_the_others_loses_nothing() -> None:
    # One episode in 100 steps is what healthy runs have.
    assert tempered([(101, 2.0)] * 20) == pytest.approx([2.0] * 20, abs=0.08)


def test_a_lively_run_loses_what_its_rate_explains() -> None:
    left = tempered([(25, 0.5), (26, 0.0), (1, 0.0)] * 100 + [(1, 3.0)])
    # An episode in 52 steps, 1.92 times as many as expected: k + 1 over e + 1 comes near to that.
    assert left[-1] == pytest.approx(3.0 - math.log10(1.92), abs=0.03)


def test_no_fault_is_its_own_excuse() -> None:
    calm = [(500, 0.0)]
    # One long episode, and short ones in the first steps after the onset.
    assert tempered([*calm, *[(1, 2.0)] * 300]) == [0.0, *[2.0] * 300]
    assert tempered([*calm, *[(APART_STEPS // 2, 2.0)] * 2]) == [0.0, 2.0, 2.0]


def test_a_run_that_goes_back_to_an_earlier_step_goes_on() -> None:
    habit = Habit()
    assert habit.temper(500, 1.0) == 1.0
    assert 0.0 < habit.temper(400, 1.0) <= 1.0


def test_a_checkpoint_keeps_the_habit() -> None:
    whole, first, second = Habit(), Habit(), Habit()
    steps = range(100, 2000, 60)
    expected = [whole.temper(step, 1.0) for step in steps]
    for step in steps[:10]:
        first.temper(step, 1.0)
    restore(second, json.loads(json.dumps(state_of(first))))
    assert [second.temper(step, 1.0) for step in steps[10:]] == expected[10:]
