from __future__ import annotations

import numpy as np
import pytest

from rmetric.faults import make_fault
from tests.faults.common import disturbed, pair, undisturbed

FACTORS = [("low", 1.2), ("medium", 30.0), ("high", 1000.0)]


@pytest.mark.parametrize(("severity", "factor"), FACTORS)
def test_the_onset_flips_a_bit_of_one_workers_gradient(severity: str, factor: float) -> None:
    at_onset = disturbed(make_fault("SILENT_DATA_CORRUPTION", severity), runs=40).worker_gradient_factor[:, 200]
    assert ((at_onset == np.float32(factor)).sum(axis=1) == 1).all()
    assert ((at_onset == 1.0).sum(axis=1) == 7).all()


def test_it_is_always_the_same_worker_of_a_run_and_any_worker_over_runs() -> None:
    hit = disturbed(make_fault("SILENT_DATA_CORRUPTION"), runs=200).worker_gradient_factor > 1.0
    workers = hit.any(axis=1)
    assert (workers.sum(axis=1) == 1).all()
    assert workers.any(axis=0).all()


def test_flips_come_at_their_rate() -> None:
    state = disturbed(make_fault("SILENT_DATA_CORRUPTION"), runs=100)
    flips = (state.worker_gradient_factor > 1.0).any(axis=2)[:, 201:]
    assert flips.mean() == pytest.approx(0.08, rel=0.05)


def test_a_flip_kicks_by_amounts_that_vary_over_orders_of_magnitude() -> None:
    state, healthy = disturbed(make_fault("SILENT_DATA_CORRUPTION"), runs=100), undisturbed(runs=100)
    flips = (state.worker_gradient_factor > 1.0).any(axis=2)
    added = (state.kick - healthy.kick)[flips] / healthy.learning_rate_rel[flips]
    assert np.median(added) == pytest.approx(0.03, rel=0.1)
    assert np.log(added).std() == pytest.approx(1.2, rel=0.05)
    assert np.array_equal(state.kick[~flips], healthy.kick[~flips])


def test_the_flip_stands_out_in_the_variance_over_workers() -> None:
    runs = pair("SILENT_DATA_CORRUPTION", "medium")
    ratio = runs.faulty.sigma_sq[:, 399] / runs.control.sigma_sq[:, 399]
    assert ratio.min() > 1000.0


def test_a_low_bit_changes_nothing_that_lasts() -> None:
    runs = pair("SILENT_DATA_CORRUPTION", "low")
    assert np.abs(runs.relative_excess).max() < 0.05
    assert [outcome.kind for outcome in runs.outcomes] == ["recovered"] * 8


def test_only_the_top_bit_makes_weights_non_finite() -> None:
    for severity, expected in (("low", 0.0), ("medium", 0.0), ("high", 0.02)):
        state = disturbed(make_fault("SILENT_DATA_CORRUPTION", severity), runs=100)
        flips = (state.worker_gradient_factor > 1.0).any(axis=2)
        assert state.non_finite_weights[flips].mean() == pytest.approx(expected, rel=0.3)
        assert not state.non_finite_weights[~flips].any()


def test_non_finite_weights_end_the_run_in_that_step() -> None:
    runs = pair("SILENT_DATA_CORRUPTION", "high", runs=16)
    broken = [row for row, step in enumerate(runs.faulty.non_finite_step) if step is not None]
    assert len(broken) > 3
    for row in broken:
        step = runs.faulty.non_finite_step[row]
        assert np.isfinite(runs.faulty.training_loss[row, : step - 1]).all()
        assert np.isnan(runs.faulty.training_loss[row, step - 1 :]).all()


def test_nobody_is_told() -> None:
    runs = pair("SILENT_DATA_CORRUPTION", "high")
    assert runs.faulty.hardware == runs.control.hardware
    assert np.array_equal(runs.faulty.step_time_s, runs.control.step_time_s)
