"""The CUSUM: Page's recursion, a cap for outliers, gaps that count for nothing."""

import math

import numpy as np
import pytest

from rmetric.robust.reference import Cusum


def cusum(**changes: float) -> Cusum:
    return Cusum(**{"allowance": 0.5, "cap": 5.0, "ceiling": 60.0, **changes})


def test_against_the_closed_form() -> None:
    z = np.random.default_rng(0).normal(0.0, 1.0, 300)
    path = np.concatenate([[0.0], np.cumsum(np.minimum(z, 5.0) - 0.5)])
    expected = path[1:] - np.minimum.accumulate(path)[1:]
    ours = cusum(ceiling=math.inf)
    assert [ours.update(value) for value in z.tolist()] == pytest.approx(expected.tolist())


def test_one_outlier_counts_up_to_the_cap() -> None:
    assert cusum().update(1e9) == 4.5


def test_infinity_fills_it_and_nan_leaves_it() -> None:
    ours = cusum()
    assert ours.update(math.inf) == 60.0
    assert ours.update(math.nan) == 60.0
    assert ours.update(-math.inf) == 0.0


def test_the_evidence_fades_from_the_ceiling() -> None:
    ours = cusum()
    for _ in range(1000):
        ours.update(5.0)
    assert [ours.update(0.0) for _ in range(120)][-1] == 0.0


def test_a_planned_change_leaves_it_unless_it_is_infinite() -> None:
    ours = cusum()
    ours.update(2.0)
    assert ours.update(2.0, planned=True) == 1.5
    assert ours.update(math.inf, planned=True) == 60.0
