"""Surprise, the unit of all evidence, and the bar that a run raises."""

import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from rmetric.robust import windows
from rmetric.robust.surprise import (
    ALARMING,
    FIRST_RAISE,
    LARGEST_RAISE,
    LARGEST_SURPRISE,
    NOTABLE,
    OUTLASTS,
    QUIET_RECORDS,
    OwnBar,
    Tail,
)

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


QUIET = [0.0] * QUIET_RECORDS
ONE = st.one_of(st.sampled_from([0.0, 1.0, NOTABLE, 2.2, ALARMING, 3.5, math.inf]), st.floats(0.0, 10.0)).map(
    lambda one: [one]
)
QUIETER = st.integers(QUIET_RECORDS - 2, QUIET_RECORDS + 2).map(lambda records: [0.0] * records)
SURPRISES = st.lists(st.one_of(ONE, QUIETER), max_size=60).map(lambda parts: [*itertools.chain(*parts)])


def evidence(*surprises: float) -> list[float]:
    bar = OwnBar()
    return [bar.update(surprise) for surprise in surprises]


def test_what_a_run_shows_again_is_less_evidence_and_what_is_worse_more() -> None:
    assert evidence(2.6, *QUIET, 2.6, 3.6)[-2:] == pytest.approx([NOTABLE, 3.0])


def test_what_still_lasts_is_full_evidence() -> None:
    assert evidence(*[2.6] * 100, *QUIET[1:], 2.6) == [*[2.6] * 100, *QUIET[1:], 2.6]


def test_what_passes_once_may_have_been_a_failure_and_what_passes_twice_is_the_way_of_the_run() -> None:
    assert evidence(9.0, *QUIET, 9.0)[-1] == pytest.approx(9.0 - FIRST_RAISE)
    assert evidence(6.0, *QUIET, 6.0, *QUIET, 6.0)[-1] == pytest.approx(NOTABLE)
    assert evidence(9.0, *QUIET, 9.0, *QUIET, 9.0)[-1] == pytest.approx(9.0 - LARGEST_RAISE)


def test_what_lasts_longer_than_all_that_passed_is_full_evidence() -> None:
    surprises = [*[3.0] * 10, *QUIET, *[3.0] * 60]
    found = evidence(*surprises)[-60:]
    bar = OUTLASTS * 10
    assert found == [*[NOTABLE] * bar, *[3.0] * (60 - bar)]
    assert windows.evidence(OwnBar(), np.array(surprises)).tolist()[-60:] == found


@pytest.mark.parametrize("apart", [8, 25, 45])
def test_what_returns_for_the_fourth_time_is_the_way_of_the_run(apart: int) -> None:
    found = evidence(*([6.0] * 3 + [0.0] * apart) * 6)
    assert [found[index * (apart + 3)] for index in range(6)] == [6.0] * 5 + [NOTABLE]


def test_what_wavers_does_not_return() -> None:
    assert min(evidence(*([6.0, 6.0, 2.0] * 20))[::3]) == 6.0


def test_what_is_less_than_an_alert_does_not_hold_up_the_rise() -> None:
    assert evidence(9.0, *[ALARMING] * QUIET_RECORDS, 9.0)[-1] == pytest.approx(9.0 - FIRST_RAISE)


def test_the_bar_never_falls() -> None:
    assert evidence(9.0, *QUIET, 2.5, *QUIET, 9.0)[-1] == pytest.approx(9.0 - FIRST_RAISE)


def test_what_no_healthy_step_has_is_always_an_alarm_and_not_remembered() -> None:
    assert evidence(math.inf, *QUIET, math.inf, 2.6)[-2:] == [math.inf, 2.6]


@given(SURPRISES)
def test_evidence_is_never_more_than_the_surprise_nor_much_less(surprises: list[float]) -> None:
    for surprise, found in zip(surprises, evidence(*surprises), strict=True):
        assert max(surprise - LARGEST_RAISE, 0.0) <= found <= surprise


@given(SURPRISES, st.integers(0, 60))
def test_by_columns_it_is_the_same_to_the_last_bit(surprises: list[float], cut: int) -> None:
    bar = OwnBar()
    parts = [windows.evidence(bar, np.array(part, dtype=float)) for part in (surprises[:cut], surprises[cut:])]
    assert np.concatenate(parts).tolist() == evidence(*surprises)
