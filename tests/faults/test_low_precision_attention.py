from __future__ import annotations

import numpy as np

from rmetric.faults import make_fault
from tests.faults.common import disturbed, pair, response


def test_the_loss_leaves_its_path_slowly_and_then_for_good() -> None:
    runs = pair("LOW_PRECISION_ATTENTION", "high", runs=16, steps=3000, onset=1000)
    assert runs.median_excess(1000, 1001) < 0.5 * runs.median_excess(2901, 3000)
    assert runs.median_excess(2901, 3000) > 0.05


def test_a_small_bias_does_little() -> None:
    runs = pair("LOW_PRECISION_ATTENTION", "low", runs=16, steps=3000, onset=1000)
    assert runs.median_excess(2901, 3000) < 0.05


def test_without_a_bias_nothing_happens() -> None:
    state = disturbed(make_fault("LOW_PRECISION_ATTENTION", bias_ulp=0.0))
    assert not state.floor.any()
    assert np.array_equal(state.gradient_factor, np.ones_like(state.gradient_factor))


def test_most_runs_fail_after_their_delay_and_not_at_once() -> None:
    runs = pair("LOW_PRECISION_ATTENTION", "medium", runs=16, steps=3000, onset=1000)
    waits = [outcome.failure_step - 1000 for outcome in runs.outcomes if outcome.failure_step is not None]
    assert len(waits) > 12
    assert 0.5 * response("LOW_PRECISION_ATTENTION", "medium").delay_steps < np.median(waits) < 250.0
