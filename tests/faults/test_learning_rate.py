"""Learning rates that are too high, for a while and for good."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from rmetric.faults import LrSpike, make_fault, register_fault
from rmetric.simulation import RunSpec, TrainingSimulator
from tests.faults.common import pair, response


@pytest.mark.parametrize(("severity", "factor"), [("low", 5.0), ("medium", 15.0), ("high", 25.0)])
def test_the_learning_rate_is_a_multiple_for_exactly_the_duration(severity: str, factor: float) -> None:
    runs = pair("LR_SPIKE", severity)
    ratio = runs.faulty.learning_rate / runs.control.learning_rate
    expected = np.ones(1200)
    expected[399:419] = factor
    assert np.allclose(ratio, expected, rtol=1e-12, atol=0.0)
    assert runs.faulty.cleared == [420] * 8
    assert make_fault("LR_SPIKE", severity).duration_steps == 20


def test_a_factor_that_is_not_too_high_loses_nothing(clean_registries: None) -> None:
    @register_fault("NO_SPIKE")
    @dataclass(frozen=True, kw_only=True)
    class NoSpike(LrSpike):
        """The learning rate as it should be."""

        severities = {}  # noqa: RUF012
        responds_as = "LR_SPIKE"
        factor: float = 1.0

    specs = [RunSpec(architecture="llama-3-8b", fault="NO_SPIKE", seed=seed, steps=600) for seed in range(5)]
    traces = TrainingSimulator().simulate(specs)
    assert np.array_equal(traces.held_out, traces.twin_held_out)


def test_the_loss_jumps_by_the_fitted_share_at_the_peak_of_the_schedule() -> None:
    runs = pair("LR_SPIKE", "high", onset=100, runs=16)
    fitted = response("LR_SPIKE", "high")
    assert runs.median_excess(101, 105) == pytest.approx(fitted.jump + fitted.kick, rel=0.4)


def test_the_larger_the_factor_the_larger_the_jump() -> None:
    jumps = [pair("LR_SPIKE", severity, onset=100).median_excess(101, 110) for severity in ("low", "medium", "high")]
    assert jumps == sorted(jumps)
    assert jumps[0] > 0.0


def test_a_run_does_not_run_away_to_infinity() -> None:
    assert pair("LR_SPIKE", "high", onset=100).faulty.non_finite_step == [None] * 8


def test_a_spike_in_the_tail_of_the_schedule_is_weaker() -> None:
    early, late = pair("LR_SPIKE", "high", onset=200, runs=16), pair("LR_SPIKE", "high", onset=1100, runs=16)
    assert late.median_excess(1101, 1110) < early.median_excess(201, 210)


# -- for good


@pytest.mark.parametrize(("severity", "factor"), [("low", 3.0), ("medium", 6.0), ("high", 12.0)])
def test_the_learning_rate_is_a_multiple_until_the_run_ends(severity: str, factor: float) -> None:
    runs = pair("LARGE_LR", severity)
    ratio = runs.faulty.learning_rate / runs.control.learning_rate
    assert np.allclose(ratio[:, :399], 1.0, rtol=1e-12)
    assert np.allclose(ratio[:, 399:], factor, rtol=1e-12)
    assert runs.faulty.cleared == [None] * 8


def test_a_larger_factor_that_stays_costs_more() -> None:
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
