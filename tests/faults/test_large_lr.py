from __future__ import annotations

import numpy as np
import pytest

from tests.faults.common import pair


@pytest.mark.parametrize(("severity", "factor"), [("low", 3.0), ("medium", 6.0), ("high", 12.0)])
def test_the_learning_rate_is_a_multiple_until_the_run_ends(severity: str, factor: float) -> None:
    runs = pair("LARGE_LR", severity)
    ratio = runs.faulty.learning_rate / runs.control.learning_rate
    assert np.allclose(ratio[:, :399], 1.0, rtol=1e-12)
    assert np.allclose(ratio[:, 399:], factor, rtol=1e-12)
    assert runs.faulty.cleared == [None] * 8


def test_a_larger_factor_diverges_sooner() -> None:
    sooner, later = pair("LARGE_LR", "high", runs=16), pair("LARGE_LR", "medium", runs=16)
    first = [
        np.where(np.isnan(runs.relative_excess) | (runs.relative_excess > 0.05), np.arange(1200), 1200).min(axis=1)
        for runs in (sooner, later)
    ]
    assert (first[0] <= first[1]).all()
    assert (first[0] < first[1]).any()


def test_where_the_schedule_is_low_nothing_happens() -> None:
    assert (
        pair("LARGE_LR", "medium", runs=16, onset=150).failed_share
        > pair("LARGE_LR", "medium", runs=16, onset=900).failed_share
    )
