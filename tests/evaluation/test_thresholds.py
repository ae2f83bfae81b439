"""Thresholds chosen on the runs that are given."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmetric.evaluation.protocols import HEALTHY, WARNING, Starts
from rmetric.evaluation.thresholds import lowest_within_budget


def _starts(scores: list[float], *, run: list[int], zone: int = HEALTHY) -> Starts:
    """Records far apart: each one above the threshold begins an episode."""
    high = np.array(scores)
    zones = np.full(len(high), zone, dtype=np.int8)
    return Starts(np.array(run), np.arange(len(high)), zones, np.full(len(high), -np.inf), high)


@pytest.mark.parametrize(("steps", "expected"), [(9_999, 5.0), (10_000, 4.0), (30_000, 2.0), (50_000, 1.0)])
def test_the_lowest_threshold_that_keeps_the_budget(steps: int, expected: float) -> None:
    starts = _starts([3.0, 5.0, 1.0, 4.0, 2.0], run=[0] * 5)
    threshold = lowest_within_budget(starts, steps, np.array([True]))
    assert threshold == expected
    assert (starts.high > threshold).sum() <= steps / 10_000


def test_only_healthy_records_of_the_chosen_runs_are_looked_at() -> None:
    others = np.array([True, False])
    assert lowest_within_budget(_starts([1.0, 9.0], run=[0, 1]), 100, others) == 1.0
    assert math.isnan(lowest_within_budget(_starts([9.0], run=[0], zone=WARNING), 100, others))
    assert math.isnan(lowest_within_budget(_starts([9.0], run=[0]), 0, others))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), min_size=1), st.integers(0, 5))
def test_the_lowest_threshold_is_the_first_from_which_on_no_more_episodes_begin(
    records: list[tuple[int, int]], allowed: int
) -> None:
    low = np.array([low for low, _ in records], float)
    high = low + [more for _, more in records]  # a lower threshold may merge episodes: fewer begin again
    nothing = np.zeros(len(records), np.int8)
    starts = Starts(nothing, np.arange(len(records)), nothing + HEALTHY, low, high)
    found = lowest_within_budget(starts, 1.0, np.array([True]), float(allowed))
    begun = {limit: starts.at(limit).sum() for limit in high.tolist()}
    assert all(count <= allowed for limit, count in begun.items() if limit >= found)
    below = [limit for limit in begun if limit < found]
    assert not below or begun[max(below)] > allowed
