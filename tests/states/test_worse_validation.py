"""WORSE_VALIDATION: a validation loss that steps up and stays."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmetric.records import Observations
from rmetric.states import states_of
from tests.states.common import FALLING, RECORDS, names, normal, observed


@pytest.mark.parametrize("seed", range(0, 30, 2))
@pytest.mark.parametrize(("times", "worse"), [(3.0, True), (1.3, True), (1.0, False)])
def test_a_validation_loss_that_multiplies_is_worse_though_training_has_converged(
    times: float, worse: bool, seed: int
) -> None:
    at = np.arange(RECORDS)
    held_out = np.where(at % 16 == 15, 1.1 + 0.01 * normal(seed), np.nan)
    held_out[250:] *= times
    converged = 1.0 + 0.05 * normal(seed + 1) + 2.0 * np.exp(-at / 4.0)
    found = names(observed(training_loss=converged, validation_loss=held_out))
    assert bool({"WORSE_VALIDATION", "OVERFITS"}.intersection(found)) == worse


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("noise", "step", "worse"), [(0.4, 0.0, True), (0.05, -0.2, True), (0.2, 0.16, False)])
def test_what_noise_hides_of_the_training_loss_hides_no_lasting_step_of_the_validation_loss(
    noise: float, step: float, worse: bool, seed: int
) -> None:
    rng, at = np.random.default_rng(seed), np.arange(1800)
    stepped = at >= 700
    held_out = np.where(at % 60 == 59, 0.41 - 0.1 * np.minimum(at / 700, 1.0) + 0.002 * rng.normal(size=1800), np.nan)
    training = np.abs((0.3 + step * stepped) * (1.0 + noise * rng.normal(size=1800)))
    found = names(observed(training_loss=training, validation_loss=held_out + 0.16 * stepped))
    assert ("WORSE_VALIDATION" in found) == worse


def stepping_up(after: int, training: np.ndarray = FALLING) -> Observations:
    """Validation every 20 records: down to 0.5, and after record 300 so many times at 0.85."""
    due, steps = np.arange(9, RECORDS, 20), np.arange(RECORDS)
    losses = 0.5 + np.exp(-due / 60.0) + 0.001 * np.random.default_rng(5).normal(size=len(due))
    losses[14] += 0.004  # the last one before the step is not the lowest
    losses[15 : 15 + after] += 0.35
    held_out = np.full(RECORDS, math.nan)
    held_out[due] = losses
    return observed(training_loss=training, validation_loss=held_out).rows(steps < due[min(15 + after, 19)] + 1)


@pytest.mark.parametrize("first", [0.5, 0.874, 2.3])
def test_the_first_evaluation_of_an_untrained_network_hides_no_step(first: float) -> None:
    held_out = np.full(RECORDS, math.nan)
    held_out[39::40] = [first, 0.493, 0.42, 0.479, 0.427, 0.78, 0.964, 0.934, 0.943, 0.933]
    level = 0.6 + 0.4 * np.exp(-np.arange(RECORDS) / 32.0) + 0.03 * normal(1)
    (state,) = states_of(observed(training_loss=level, validation_loss=held_out))
    assert (state.name, state.since) == ("WORSE_VALIDATION", 240)


def test_a_validation_loss_that_steps_up_and_stays_is_worse_where_the_training_loss_falls_on() -> None:
    falling = 3.0 * np.exp(-np.arange(RECORDS) / 100.0)
    (state,) = states_of(stepping_up(5, falling))
    assert (state.name, state.since) == ("WORSE_VALIDATION", 310)
    assert state.numbers["level"] == pytest.approx(0.85, abs=0.03)
    leapt = falling + np.where(np.arange(RECORDS) < 295, 0.0, 5.0 * 0.9 ** (np.arange(RECORDS) - 295.0))
    for training in (falling, leapt):  # of neither is it said that it went on falling
        assert names(stepping_up(5, training)) == ["WORSE_VALIDATION"]
        assert "the training loss has fallen since" in states_of(stepping_up(5, training))[0].sentence
    assert not names(stepping_up(1, falling))  # a single one, and back
    rising = np.concatenate([falling[:300], falling[300] + 0.001 * np.arange(100)])
    assert "WORSE_VALIDATION" not in names(stepping_up(5, rising))
