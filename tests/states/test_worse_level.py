"""WORSE_LEVEL: a training loss that has settled above a level that it had."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmetric.states import History, states_of
from tests.states.common import FALLING, RECORDS, names, normal, observed


def test_a_loss_that_climbs_began_where_it_left_its_level_and_not_halfway_up() -> None:
    climbs = FALLING + np.clip(np.arange(RECORDS) - 250.0, 0.0, None) ** 3
    (state,) = states_of(observed(training_loss=climbs))
    assert state.name == "WORSE_LEVEL" and 245 <= state.since <= 265


def test_a_run_that_learned_and_then_diverged_did_learn() -> None:
    diverged = np.concatenate([FALLING[:150], 30.0 + np.random.default_rng(5).normal(size=250)])
    assert names(observed(training_loss=diverged)) == ["WORSE_LEVEL"]


def test_a_run_that_soon_lost_what_it_had_learned_did_learn() -> None:
    noise = 0.02 * np.random.default_rng(6).normal(size=150)
    lost = np.where(np.arange(150) < 30, 2.3 - 0.055 * np.arange(150), 2.3) + noise
    assert names(observed(training_loss=lost)) == ["WORSE_LEVEL"]


@pytest.mark.parametrize(("broke_at", "state"), [(240, "WORSE_LEVEL"), (40, "NEVER_LEARNS")])
def test_a_fine_tuning_that_had_hardly_fallen_when_it_broke_is_worse_since_then(broke_at: int, state: str) -> None:
    at = np.arange(RECORDS)
    hardly = 2.69 - 0.03 * np.minimum(at / 200, 1.0) + 0.06 * normal(3)
    (found,) = states_of(observed(training_loss=np.where(at < broke_at, hardly, 3.15 + 0.06 * normal(4))))
    assert found.name == state and abs(found.since - (broke_at if state == "WORSE_LEVEL" else 1)) < 3


@pytest.mark.parametrize("records", [250, 600, 2000])
def test_what_broke_is_told_alike_however_long_the_run_goes_on(records: int) -> None:
    broken = 1.5 + 0.02 * np.random.default_rng(0).standard_normal(records) + 0.4 * (np.arange(records) >= 150)
    (found,) = states_of(observed(training_loss=broken))
    assert found.name == "WORSE_LEVEL" and abs(found.since - 150) < 3


def test_a_margin_that_batches_keep_may_be_lost_but_a_loss_that_begins_at_0_can_only_rise() -> None:
    at = np.arange(RECORDS)
    kept = np.maximum(0.0, 0.05 * np.exp(-at / 60.0) - 0.012 + 0.01 * normal(7))
    risen = np.where(at < 200, kept, 0.1 + 0.02 * np.abs(normal(8)))
    assert names(observed(training_loss=risen)) == ["WORSE_LEVEL"]
    penalty = 0.02 * (1.0 - np.exp(-at / 60.0)) * (1.0 + 0.1 * normal(9))
    assert penalty[0] == 0.0 and names(observed(training_loss=penalty)) == []
    assert names(observed(training_loss=penalty[1:])) == ["WORSE_LEVEL"]


@pytest.mark.parametrize("records", [100, 400, 495, 501])
def test_levels_that_come_in_turn_are_one_level(records: int) -> None:
    at = np.arange(records)
    turns = np.where(at % 2, 1.0, 0.6) * FALLING[np.minimum(at, RECORDS - 1)]
    assert "WORSE_LEVEL" not in names(observed(training_loss=turns))
    assert "WORSE_LEVEL" in names(observed(training_loss=np.where(at < 0.6 * records, turns, turns + 2.5)))


@pytest.mark.parametrize(("rewards", "worse"), [(-FALLING, False), (FALLING, True), (np.full(RECORDS, np.nan), True)])
def test_a_loss_that_rises_with_the_reward_of_an_agent_is_no_worse_level(rewards: np.ndarray, worse: bool) -> None:
    risen = np.where(np.arange(RECORDS) < 200, FALLING, 57.0 + np.random.default_rng(2).normal(size=RECORDS))
    assert ("WORSE_LEVEL" in names(observed(training_loss=risen, reward=rewards))) == worse


def test_a_worse_level_lasts() -> None:
    worse, spike = FALLING.copy(), FALLING.copy()
    worse[250:] += 1.0
    spike[250:300] += 1.0
    (state,) = states_of(observed(training_loss=worse))
    assert state.name == "WORSE_LEVEL"
    assert "has settled at about" in state.sentence
    assert 240 <= state.since <= 260
    assert names(observed(training_loss=spike)) == []
    climbing = FALLING + np.clip(np.arange(RECORDS) - 250.0, 0.0, None) / 50.0
    (state,) = states_of(observed(training_loss=climbing))
    assert "still rises, and is at about" in state.sentence


@pytest.mark.parametrize(("validation_rises", "found"), [(True, True), (False, False)])
def test_a_training_loss_that_climbs_by_design_is_no_worse_level(validation_rises: bool, found: bool) -> None:
    training = FALLING + np.where(np.arange(RECORDS) >= 250, 1.0, 0.0)
    validation = np.where(np.arange(RECORDS) % 10 == 9, training if validation_rises else FALLING, math.nan)
    assert ("WORSE_LEVEL" in names(observed(training_loss=training, validation_loss=validation))) == found


@pytest.mark.parametrize(
    ("course", "later", "found"),
    [(1.0 + 0.05 * normal(3), 10.0, ["WORSE_LEVEL"]), (FALLING, 10.0, ["WORSE_LEVEL"]), (FALLING, 2.0, [])],
    ids=["of a model that was trained before", "stays", "comes back"],
)
def test_a_leap_for_good_is_told_though_no_validation_loss_shows_it(
    course: np.ndarray, later: float, found: list[str]
) -> None:
    at = np.arange(RECORDS)
    training = course * np.where(at < 200, 1.0, np.where(at < 250, 10.0, later))
    validation = np.where(at % 20 == 19, 1.0, math.nan)
    states = states_of(observed(training_loss=training, validation_loss=validation))
    assert [state.name for state in states] == found
    assert all("does not show this leap" in state.sentence and state.since == 201 for state in states)


@pytest.mark.parametrize(
    ("rate_now", "found"), [(1.0, False), (1.5, True), (0.1, True)], ids=["back", "never so high", "as at the best"]
)
def test_a_loss_that_climbs_with_a_restarted_learning_rate_is_no_worse_level(rate_now: float, found: bool) -> None:
    after = np.arange(RECORDS) >= 300
    rates = np.where(after, rate_now, np.where(np.arange(RECORDS) < 200, 1.0, 0.1))
    training = FALLING + np.where(after | (np.arange(RECORDS) < 200), 1.0, 0.0)
    assert ("WORSE_LEVEL" in names(observed(training_loss=training, learning_rate=rates))) == found


def test_a_restart_explains_no_more_than_the_loss_had_been_at_that_rate() -> None:
    rates = np.where(np.arange(RECORDS) % 100 < 50, 1.0, 0.1)
    training = FALLING + np.where(np.arange(RECORDS) >= 300, 2.0, 0.0)
    assert names(observed(training_loss=training, learning_rate=rates)) == ["WORSE_LEVEL"]


@pytest.mark.parametrize("highest", [1e20, 1e6, 10.0])
def test_a_loss_that_still_falls_from_far_above_hides_no_worse_level(highest: float) -> None:
    training, held_out = FALLING.copy(), np.full(RECORDS, np.nan)
    training[150:] = 3.0 + np.geomspace(1e20, 0.01, RECORDS - 150) ** np.linspace(1.0, 0.3, RECORDS - 150)
    training = np.minimum(training, highest)
    held_out[49::50] = training[49::50]
    assert names(observed(training_loss=training)) == ["WORSE_LEVEL"]
    assert names(observed(training_loss=training, validation_loss=held_out)) == ["WORSE_LEVEL"]


def test_a_level_that_was_left_on_purpose_is_no_worse_one() -> None:
    after = np.arange(RECORDS) >= 250
    planned = np.where(np.arange(RECORDS) == 250, 1.0, math.nan)
    run = observed(training_loss=FALLING + np.where(after, 1.0, 0.0), planned_changes=planned)
    assert names(run) == []
    run.columns["training_loss"][330:] += 1.0  # and once more, which nobody has announced
    assert names(run) == ["WORSE_LEVEL"]


@pytest.mark.parametrize(("risen", "found"), [(200, True), (300, False), (305, False)])
def test_a_change_that_is_announced_after_a_level_was_lost_does_not_excuse_it(risen: int, found: bool) -> None:
    planned = np.where(np.isin(np.arange(RECORDS), (100, 300, 370)), 1.0, math.nan)
    training = FALLING + np.where(np.arange(RECORDS) >= risen, 1.0, 0.0)
    states = states_of(observed(training_loss=training, planned_changes=planned))
    assert [state.name for state in states] == ["WORSE_LEVEL"] * found
    assert all(abs(state.since - risen) < 3 for state in states)


@pytest.mark.parametrize("told", ["learning_rate", "planned_changes"])
def test_what_excuses_a_higher_level_is_kept_of_a_long_run(told: str) -> None:
    after = np.arange(RECORDS) >= 300
    rates = np.where(after | (np.arange(RECORDS) < 200), 1.0, 0.1)
    planned = np.where(np.arange(RECORDS) == 300, 1.0, math.nan)
    columns = {"learning_rate": rates, "planned_changes": planned}
    run = observed(training_loss=FALLING + np.where(rates == 1.0, 1.0, 0.0), **{told: columns[told]})
    for most in (4096, 150):
        history = History(most)
        history.extend(run)
        assert names(history.observations) == []


@pytest.mark.parametrize(("times", "found"), [(20.0, False), (100.0, True)])
def test_of_a_fall_by_many_powers_of_ten_a_small_share_may_be_much(times: float, found: bool) -> None:
    learned = 1e3 * np.exp(-np.arange(RECORDS) / 20.0) + 0.1 * np.exp(0.3 * normal())
    assert names(observed(training_loss=np.where(np.arange(RECORDS) < 300, learned, times * learned))) == (
        ["WORSE_LEVEL"] * found
    )
