from __future__ import annotations

import numpy as np
import pytest

from rmetric.faults import make_fault
from tests.faults.common import disturbed, pair, undisturbed


def test_loss_and_gradients_stay_normal_for_long_and_then_leave() -> None:
    runs = pair("LOW_PRECISION_ATTENTION", "high", runs=16, steps=3000, onset=1000)
    excess = runs.relative_excess
    assert np.abs(excess[:, 1000:1100]).max() < 0.01
    norms = runs.faulty.grad_norm[:, 1000:1100] / runs.control.grad_norm[:, 1000:1100]
    assert 0.8 < norms.min() <= norms.max() < 1.2
    gone = np.isnan(excess[:, -1]) | (excess[:, -1] > 0.05)
    assert gone.mean() > 0.7


def test_it_leaves_suddenly() -> None:
    excess = pair("LOW_PRECISION_ATTENTION", "high", runs=16, steps=3000, onset=1000).relative_excess
    shares = []
    for row in excess:
        left = np.isnan(row) | (row > 0.05)
        if left[-1]:
            leaves = int(left.argmax())
            quiet_until = int(np.flatnonzero(row[:leaves] < 0.005)[-1])
            shares.append((leaves - quiet_until) / (leaves - 999))
    # From the last step at which nothing could be seen: a small part of the incubation.
    assert len(shares) > 10
    assert np.median(shares) < 0.35


@pytest.mark.parametrize(("severity", "ramp"), [("low", 3000.0), ("medium", 800.0), ("high", 250.0)])
def test_the_error_accumulates_with_the_learning_rate(severity: str, ramp: float) -> None:
    state, healthy = disturbed(make_fault("LOW_PRECISION_ATTENTION", severity)), undisturbed()
    accumulated = np.cumsum(healthy.learning_rate_rel[:, 200:], axis=1) / ramp
    assert np.allclose(state.growth[:, 200:], 0.06 * accumulated, rtol=1e-12)
    assert (np.diff(state.growth[:, 200:], axis=1) > 0).all()


def test_workers_disagree_a_little_more() -> None:
    factor = disturbed(make_fault("LOW_PRECISION_ATTENTION", "high")).gradient_noise_factor
    assert (np.diff(factor[:, 200:], axis=1) >= 0).all()
    assert 1.1 < factor.max() <= 1.4
