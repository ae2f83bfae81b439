"""Surprise: the unit of all evidence."""

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from rmetric.robust.surprise import LARGEST_SURPRISE, Tail

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
