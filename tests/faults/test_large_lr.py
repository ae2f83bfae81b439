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


def test_a_larger_factor_costs_more() -> None:
    more, less = (pair("LARGE_LR", severity, runs=16).median_excess(401, 500) for severity in ("high", "medium"))
    assert more > less


def test_what_is_lost_stays_lost_while_a_spike_heals() -> None:
    lasting, passing = pair("LARGE_LR", "high", onset=100), pair("LR_SPIKE", "medium", onset=100)
    assert lasting.median_excess(1101, 1200) > 0.8 * lasting.median_excess(101, 110)
    assert passing.median_excess(1101, 1200) < 0.8 * passing.median_excess(101, 110)


def test_where_the_schedule_is_low_less_happens() -> None:
    early = pair("LARGE_LR", "medium", runs=16, onset=150).median_excess(151, 250)
    late = pair("LARGE_LR", "medium", runs=16, onset=1050).median_excess(1051, 1150)
    assert late < early
