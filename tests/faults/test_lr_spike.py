from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from rmetric.faults import LrSpike, make_fault, register_fault
from rmetric.simulation import RunSpec, TrainingSimulator
from tests.faults.common import pair


@pytest.mark.parametrize(("severity", "factor"), [("low", 5.0), ("medium", 15.0), ("high", 25.0)])
def test_the_learning_rate_is_a_multiple_for_exactly_the_duration(severity: str, factor: float) -> None:
    runs = pair("LR_SPIKE", severity)
    ratio = runs.faulty.learning_rate / runs.control.learning_rate
    expected = np.ones(1200)
    expected[399:419] = factor
    assert np.allclose(ratio, expected, rtol=1e-12, atol=0.0)
    assert runs.faulty.cleared == [420] * 8
    assert make_fault("LR_SPIKE", severity).duration_steps == 20


def test_below_the_stability_limit_nothing_is_lost(clean_registries: None) -> None:
    @register_fault("SMALL_SPIKE")
    @dataclass(frozen=True, kw_only=True)
    class SmallSpike(LrSpike):
        """Twice the learning rate: every run of the simulator is stable at that."""

        severities = {}  # noqa: RUF012
        factor: float = 2.0

    specs = [RunSpec(architecture="llama-3-8b", fault="SMALL_SPIKE", seed=seed, steps=600) for seed in range(20)]
    traces = TrainingSimulator().simulate(specs)
    assert (traces.learning_rate.max(axis=1) > 1.2 * 3e-4).any()
    assert np.array_equal(traces.held_out, traces.twin_held_out)


def test_a_little_beyond_it_training_heals_what_the_spike_did() -> None:
    excess = pair("LR_SPIKE", "low").relative_excess
    assert excess.max() > 0.01
    assert np.abs(excess[:, -1]).max() < 1e-6


def test_beyond_it_the_loss_runs_away_within_the_spike() -> None:
    excess = pair("LR_SPIKE", "high").relative_excess
    assert np.nanmax(excess[:, 399], initial=0.0) < 0.01
    beyond = np.isnan(excess[:, 418]) | (excess[:, 418] > 0.1)
    assert beyond.mean() > 0.7


def test_the_run_away_is_exponential() -> None:
    excess = pair("LR_SPIKE", "high").relative_excess[:, 400:408]
    rate = np.diff(np.log(excess), axis=1)
    assert (rate > 0.1).all()
    assert (rate[:, 2:].std(axis=1) < 0.5 * rate[:, 2:].mean(axis=1)).all()


def test_a_spike_in_the_tail_of_the_schedule_is_weaker() -> None:
    early, late = pair("LR_SPIKE", "high", onset=200, runs=16), pair("LR_SPIKE", "high", onset=1100, runs=16)
    assert late.failed_share < early.failed_share
