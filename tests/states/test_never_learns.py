"""NEVER_LEARNS: a loss that shows no fall, where one would be seen."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmetric.states import evidence_of, states_of
from tests.states.common import FALLING, RECORDS, names, normal, observed


def test_a_run_that_never_learned_had_no_better_level_either() -> None:
    flat = 1.0 + np.where(np.arange(RECORDS) < 200, 0.0, 0.05) + 0.001 * normal(1)
    assert {*evidence_of(observed(training_loss=flat))} >= {"NEVER_LEARNS", "WORSE_LEVEL"}
    assert names(observed(training_loss=flat)) == ["NEVER_LEARNS"]


def test_a_loss_that_leaps_from_where_it_began_is_worse_and_not_flat() -> None:
    leapt = np.where(np.arange(RECORDS) < 150, 0.57, 1.18) + 0.05 * normal(1)
    assert names(observed(training_loss=leapt)) == ["WORSE_LEVEL"]


def test_a_flat_loss_never_learns() -> None:
    flat = 2.3 + 0.05 * np.random.default_rng(1).normal(size=RECORDS)
    (state,) = states_of(observed(training_loss=flat))
    assert (state.name, state.since, state.until) == ("NEVER_LEARNS", 1, RECORDS)
    assert "shows no fall up to step 400" in state.sentence


def test_a_loss_at_ln_classes_never_learns_however_it_came_there() -> None:
    gap = 0.5 * np.exp(-np.arange(RECORDS) / 20.0) + 0.01 * np.random.default_rng(2).normal(size=RECORDS)
    at_uniform = observed(training_loss=math.log(10.0) + gap, uniform_gap=gap)
    assert names(at_uniform) == ["NEVER_LEARNS"]
    assert names(observed(training_loss=math.log(10.0) + gap)) == []


def test_a_loss_that_still_falls_to_ln_classes_or_stays_just_below_it_has_learned() -> None:
    noise = 0.02 * np.random.default_rng(2).normal(size=RECORDS)
    falling, below = 4.0 * np.linspace(1.0, 0.1, RECORDS) + noise, -0.015 * np.linspace(0.0, 1.0, RECORDS) + 0.1 * noise
    for gap in (falling, below):
        assert names(observed(training_loss=math.log(10.0) + gap, uniform_gap=gap)) == []


def test_a_validation_loss_that_falls_is_learning() -> None:
    noise = np.random.default_rng(3).normal(size=RECORDS)
    validation = np.where(np.arange(RECORDS) % 20 == 19, FALLING, math.nan)
    assert names(observed(training_loss=5.0 + noise, validation_loss=validation)) == []


def test_a_validation_loss_that_fell_until_the_run_broke_was_learning() -> None:
    held_out = np.full(RECORDS, np.nan)
    held_out[19::20] = 4.9 + 0.3 * np.exp(-np.arange(20) / 3.0)
    held_out[240:] *= 3.0
    flat = 5.0 + 0.3 * normal()
    assert "NEVER_LEARNS" not in names(observed(training_loss=flat, validation_loss=held_out))
    assert "NEVER_LEARNS" in names(observed(training_loss=flat))


@pytest.mark.parametrize(
    ("loss", "records", "better", "found"),
    [
        (2.3026, 20, False, True),
        (2.3026, 19, False, False),
        (2.3, 60, False, False),
        (2.3026, 60, True, False),
    ],
    ids=["not moved", "too few", "rounded, as it may be", "stale beside evaluations that fall"],
)
def test_a_loss_of_one_number_is_told_early(loss: float, records: int, better: bool, found: bool) -> None:
    held_out = {"validation_loss": np.linspace(2.0, 1.0, records)} if better else {}
    assert ("NEVER_LEARNS" in names(observed(training_loss=[loss] * records, **held_out))) == found


@pytest.mark.parametrize(("spread", "judged"), [(0.1, True), (0.6, False)])
def test_a_loss_that_is_mostly_noise_says_nothing_of_learning(spread: float, judged: bool) -> None:
    flat = 0.1 * np.exp(spread * np.random.default_rng(1).normal(size=RECORDS))  # as steps of a diffusion model
    assert ("NEVER_LEARNS" in names(observed(training_loss=flat))) == judged


@pytest.mark.parametrize("seed", range(4))
def test_a_short_log_in_whose_noise_a_fall_may_be_hidden_says_nothing_of_learning(seed: int) -> None:
    noise = np.random.default_rng(seed).normal(size=RECORDS)
    slowly = 1.15 + 0.1 * np.exp(-np.arange(RECORDS) / 60) + 0.1 * noise  # a model that was trained before
    assert "NEVER_LEARNS" not in names(observed(training_loss=slowly[:120]))
    assert "NEVER_LEARNS" in names(observed(training_loss=1.15 + 0.1 * noise))


def test_losses_that_are_not_above_0_say_nothing_of_learning() -> None:
    assert "NEVER_LEARNS" not in evidence_of(observed(training_loss=0.1 * normal(1)))


@pytest.mark.parametrize(("rewards", "learns"), [(-FALLING, True), (np.ones(RECORDS), False)])
def test_an_agent_that_gets_more_reward_learns_whatever_its_loss_does(rewards: np.ndarray, learns: bool) -> None:
    flat = 2.3 + 0.05 * np.random.default_rng(1).normal(size=RECORDS)
    assert ("NEVER_LEARNS" not in names(observed(training_loss=flat, reward=rewards))) == learns


DECAY = np.exp(-np.arange(RECORDS) / 30)


@pytest.mark.parametrize(
    ("gap", "found"),
    [
        (-0.006 + 0.05 * DECAY + 0.01 * normal(5), False),  # labels that are mostly noise: there was little to learn
        (0.05 * DECAY + 0.01 * normal(5), True),
        (np.round(math.log(10.0) - 0.001 + 0.001 * normal(5), 2) - math.log(10.0), True),  # two decimals
        (np.full(RECORDS, -1e-7), True),
        (2.0 + 3.0 * DECAY + 0.2 * normal(5), False),  # a margin: it stands far above
        (2.0 + 0.2 * normal(5), True),
    ],
    ids=["surely below", "at it", "rounded", "exactly at it", "fallen to a level above", "always above"],
)
def test_what_lies_surely_below_ln_classes_or_fell_to_far_above_has_learned(gap: np.ndarray, found: bool) -> None:
    at_classes = observed(training_loss=math.log(10.0) + gap, uniform_gap=gap)
    assert ("NEVER_LEARNS" in names(at_classes)) == found
