from __future__ import annotations

import numpy as np
import pytest

from rmetric.faults import make_fault
from tests.faults.common import disturbed, pair, undisturbed

SHARES = [("low", 0.02), ("medium", 0.05), ("high", 0.10)]


@pytest.mark.parametrize(("severity", "share"), SHARES)
def test_the_training_loss_rises_at_once_by_what_random_tokens_cost(severity: str, share: float) -> None:
    runs = pair("DATA_CORRUPTION", severity)
    rise = (runs.faulty.training_loss - runs.control.training_loss)[:, 399:409].mean()
    cost = runs.faulty.specs[0].profile.initial_loss - runs.control.held_out[:, 399:409].mean()
    assert rise == pytest.approx(share * cost, rel=0.15)
    assert (runs.faulty.training_loss[:, 399] > runs.control.training_loss[:, 399]).all()


@pytest.mark.parametrize(("severity", "share"), SHARES)
def test_the_held_out_loss_follows_slowly(severity: str, share: float) -> None:
    excess = pair("DATA_CORRUPTION", severity, steps=2500, runs=16).relative_excess
    final = excess[:, -1]
    assert np.median(final) == pytest.approx(1.4 * share, rel=0.3)
    assert (excess[:, 409] < 0.2 * final).all()
    reached = (excess[:, 399:] > 0.63 * final[:, None]).argmax(axis=1)
    assert 150 < np.median(reached) < 450


def test_workers_disagree_more() -> None:
    factor = disturbed(make_fault("DATA_CORRUPTION", "high")).gradient_noise_factor
    assert np.allclose(factor[:, 200:], 1.8)
    runs = pair("DATA_CORRUPTION", "high")
    ratio = np.median(runs.faulty.sigma_sq[:, 400:] / runs.control.sigma_sq[:, 400:])
    assert ratio > 1.8**2


def test_bad_batches_are_not_all_alike() -> None:
    added = disturbed(make_fault("DATA_CORRUPTION", "high")).batch_loss[:, 200:]
    cost = 0.10 * (np.log(32_000) - undisturbed().healthy_loss[:, 200:])
    assert ((added >= 0.75 * cost) & (added <= 1.25 * cost)).all()
    assert (added / cost).std() > 0.1


def test_hardware_and_time_show_nothing() -> None:
    runs = pair("DATA_CORRUPTION", "high")
    assert np.array_equal(runs.faulty.step_time_s, runs.control.step_time_s)
    assert runs.faulty.hardware == runs.control.hardware
