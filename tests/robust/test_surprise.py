"""Surprise: the unit of all evidence, less what the base rate of the run explains."""

import json
import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from rmetric.episodes import REARM_STEPS
from rmetric.robust.surprise import LARGEST_SURPRISE, BaseRate, Tail
from rmetric.state import restore, state_of

RECORDS = st.lists(st.tuples(st.integers(1, 30), st.sampled_from([0.0, 0.0, 0.3, 1.0, 3.0, math.inf])), min_size=1)
TAIL = Tail((1.0, 2.0, 4.0), (0.0, 1.0, 2.5))


@pytest.mark.parametrize(
    ("statistic", "surprise"),
    [(-1.0, 0.0), (1.0, 0.0), (1.5, 0.5), (3.0, 1.75), (4.0, 2.5), (8.0, 3.5), (16.0, 4.5), (1e300, LARGEST_SURPRISE)],
)
def test_between_the_knots_and_beyond_them(statistic: float, surprise: float) -> None:
    assert TAIL.surprise(statistic) == pytest.approx(surprise)


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_more_is_never_less_surprising(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0.0 <= TAIL.surprise(low) <= TAIL.surprise(high)


@pytest.mark.parametrize("tail", [TAIL, Tail((), ()), Tail((-2.0,), (1.0,))])
def test_what_is_not_finite_is_certain_and_what_is_not_known_is_nothing(tail: Tail) -> None:
    assert tail.surprise(math.inf) == math.inf
    assert tail.surprise(math.nan) == 0.0
    assert tail.surprise(-math.inf) == 0.0


def test_a_statistic_that_healthy_runs_never_showed_counts_only_where_it_is_infinite() -> None:
    assert Tail((), ()).surprise(1e9) == 0.0


def beyond_base_rate(records: list[tuple[int, float]], first: int = 1) -> list[float]:
    base_rate, step, found = BaseRate(), first, []
    base_rate.beyond(first, 0.0)
    for gap, surprise in records:
        step += gap
        found.append(base_rate.beyond(step, surprise))
    return found


@given(RECORDS)
def test_a_base_rate_takes_off_and_never_adds(records):
    for (_, surprise), left in zip(records, beyond_base_rate(records), strict=True):
        assert 0.0 <= left <= surprise
        assert (left == math.inf) == (surprise == math.inf)


@given(RECORDS)
def test_records_without_a_surprise_may_be_left_out(records):
    steps, step = [], 1
    for gap, surprise in records:
        step += gap
        steps.append((step, surprise))
    sparse = BaseRate()
    sparse.beyond(1, 0.0)
    told = [sparse.beyond(at, surprise) for at, surprise in steps if surprise]
    assert told == [left for (_, surprise), left in zip(records, beyond_base_rate(records), strict=True) if surprise]


def test_a_run_like_the_others_loses_nothing() -> None:
    # One episode in 100 steps is what healthy runs have.
    assert beyond_base_rate([(101, 2.0)] * 20) == pytest.approx([2.0] * 20, abs=0.08)


def test_a_lively_run_loses_what_its_rate_explains() -> None:
    left = beyond_base_rate([(25, 0.5), (26, 0.0), (1, 0.0)] * 100 + [(1, 3.0)])
    # An episode in 52 steps, 1.92 times as many as expected: k + 1 over e + 1 comes near to that.
    assert left[-1] == pytest.approx(3.0 - math.log10(1.92), abs=0.03)


def test_no_fault_is_its_own_excuse() -> None:
    calm = [(500, 0.0)]
    # One long episode, and short ones in the first steps after the onset.
    assert beyond_base_rate([*calm, *[(1, 2.0)] * 300]) == [0.0, *[2.0] * 300]
    assert beyond_base_rate([*calm, *[(REARM_STEPS // 2, 2.0)] * 2]) == [0.0, 2.0, 2.0]


def test_a_run_that_goes_back_to_an_earlier_step_goes_on() -> None:
    base_rate = BaseRate()
    assert base_rate.beyond(500, 1.0) == 1.0
    assert 0.0 < base_rate.beyond(400, 1.0) <= 1.0


def test_a_checkpoint_keeps_the_base_rate() -> None:
    whole, first, second = BaseRate(), BaseRate(), BaseRate()
    steps = range(100, 2000, 60)
    expected = [whole.beyond(step, 1.0) for step in steps]
    for step in steps[:10]:
        first.beyond(step, 1.0)
    restore(second, json.loads(json.dumps(state_of(first))))
    assert [second.beyond(step, 1.0) for step in steps[10:]] == expected[10:]
