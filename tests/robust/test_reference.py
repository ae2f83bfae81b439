"""Median and MAD of a window: against SciPy, at every length, with ties."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from scipy.stats import median_abs_deviation

from rmetric.detectors import robust_z
from rmetric.robust.reference import RobustReference, SortedWindow

values = st.lists(st.one_of(st.floats(-1e6, 1e6), st.integers(-3, 3).map(float)), min_size=1, max_size=30)


@given(values, st.integers(1, 12))
def test_a_window_has_the_median_and_the_deviation_of_its_last_values(numbers: list[float], length: int) -> None:
    window = SortedWindow(length)
    for count, number in enumerate(numbers, 1):
        window.add(number)
        recent = numbers[max(0, count - length) : count]
        assert len(window) == len(recent)
        assert window.middle == np.median(recent)
        assert window.deviation(window.middle) == np.median(np.abs(np.array(recent) - window.middle))


def test_the_scale_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    reference = RobustReference(window=16, warm_up=8, floor=1e-9, clip=1e9)
    numbers = rng.normal(3.0, 0.5, 60)
    for number in numbers.tolist():
        reference.update(number)
    before = numbers[-17:-1]
    assert reference.middle == pytest.approx(np.median(before))
    assert reference.scale == pytest.approx(1.4826 * median_abs_deviation(before))


def test_nothing_is_scored_before_the_warm_up_is_over() -> None:
    reference = RobustReference(window=8, warm_up=4, floor=0.1, clip=5.0)
    scores = [reference.update(1.0) for _ in range(6)]
    assert [math.isnan(score) for score in scores] == [True] * 4 + [False] * 2


def test_a_calm_signal_is_judged_by_the_floor() -> None:
    reference = RobustReference(window=8, warm_up=4, floor=0.1, clip=5.0)
    for _ in range(8):
        reference.update(2.0)
    assert reference.update(2.3) == pytest.approx(3.0)


def test_the_detector_of_robust_scores_uses_this_one() -> None:
    assert robust_z.RobustReference is RobustReference
