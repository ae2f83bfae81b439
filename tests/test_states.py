"""States of a run: recognised where they are, and not in healthy runs; with how rare that is."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import rmetric
from rmetric.diagnosis import diagnose
from rmetric.records import Observations, Run
from rmetric.replay import replay_log
from rmetric.replay.overview import overview_text
from rmetric.states import BUDGET, RECOGNISERS, Calibration, History, State, calibrations, evidence_of, states_of
from studies.states.fit import main as fit_states
from tests.helpers import any_observations, bits

RECORDS = 400


def normal(seed: int = 0) -> np.ndarray:
    """Noise that does not depend on which tests ran before."""
    return np.random.default_rng(seed).normal(size=RECORDS)


FALLING = 1.0 + 4.0 / np.sqrt(1.0 + np.arange(RECORDS)) + 0.05 * normal()


def observed(**columns: Any) -> Observations:
    length = len(next(iter(columns.values())))
    return Observations(np.arange(1, length + 1), {name: np.array(values) for name, values in columns.items()})


def names(observations: Observations) -> list[str]:
    return [state.name for state in states_of(observations)]


EVALUATED = {80: 2.0, 160: 1.0, 240: 1.1, 320: 1.2, 399: 1.3}
"""Step → validation loss: five, and six are needed."""


@pytest.mark.parametrize(
    ("more", "every", "enough"),
    [
        pytest.param({}, 1, False, id="each is an event, and held by the record after it: it counts once"),
        pytest.param({RECORDS: 1.4}, 1, True, id="after the last record"),
        pytest.param({245: 1.15}, 10, True, id="two between two records, of which a record holds the later one"),
    ],
)
def test_every_evaluation_that_the_log_tells_of_counts_once(more: dict[int, float], every: int, enough: bool) -> None:
    told = dict(sorted((EVALUATED | more).items()))
    held_out = np.full(RECORDS, np.nan)
    for step, loss in told.items():
        held_out[step:] = loss
    falling = 1.0 + 4.0 / np.sqrt(1.0 + np.arange(RECORDS))
    records = observed(training_loss=falling, validation_loss=held_out).rows(np.arange(every - 1, RECORDS, every))
    records = Observations(records.step, records.columns)
    events = [{"event": "VALIDATION", "step": step, "validation_loss": loss} for step, loss in told.items()]
    run = Run("run", {}, records, events)
    assert ("OVERFITS" not in diagnose(run).not_judged) == enough
    (found,) = [state for state in states_of(run) if state.name == "OVERFITS"] or [None]
    assert (found is not None) == enough
    if found is not None:
        assert (found.since, found.numbers["evaluations"]) == (160, 4.0)


def test_without_events_an_evaluation_is_a_record_with_another_loss() -> None:
    held_out = np.full(RECORDS, np.nan)
    held_out[::60] = [2.0, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5]
    (state,) = states_of(observed(training_loss=FALLING, validation_loss=held_out))
    assert (state.name, state.since, state.numbers["evaluations"]) == ("OVERFITS", 61, 5.0)


def test_gradients_of_zero_are_health_where_a_margin_is_kept_by_all() -> None:
    losses = np.where(np.arange(RECORDS) < 200, FALLING, 0.0)
    norms = np.where(losses > 0.0, 1.0, 0.0)
    assert names(observed(training_loss=losses, grad_norm=norms)) == ["DEAD"]
    solved = losses.copy()
    solved[[150, 170]] = 0.0  # single batches first
    assert not names(observed(training_loss=solved, grad_norm=np.where(solved > 0.0, 1.0, 0.0)))


def test_a_run_that_never_learned_had_no_better_level_either() -> None:
    flat = 1.0 + np.where(np.arange(RECORDS) < 200, 0.0, 0.05) + 0.001 * normal(1)
    assert {*evidence_of(observed(training_loss=flat))} >= {"NEVER_LEARNS", "WORSE_LEVEL"}
    assert names(observed(training_loss=flat)) == ["NEVER_LEARNS"]


# --- live trainings ---------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_live_trainings_are_recognised_by_the_state_in_which_they_end() -> None:
    pytest.importorskip("torch")
    from studies.states.trainings import TRAININGS, train

    for title, (hook, expected) in TRAININGS.items():
        found = names(train(hook, seed=1))
        assert expected in found if expected else not found, (title, found)


# --- one state after another ------------------------------------------------------------------------------------------


def test_a_healthy_run_is_in_no_state() -> None:
    assert names(observed(training_loss=FALLING, grad_norm=np.exp(normal(1)))) == []


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


def test_a_run_that_learned_and_then_diverged_did_learn() -> None:
    diverged = np.concatenate([FALLING[:150], 30.0 + np.random.default_rng(5).normal(size=250)])
    assert names(observed(training_loss=diverged)) == ["WORSE_LEVEL"]


def test_a_run_that_soon_lost_what_it_had_learned_did_learn() -> None:
    noise = 0.02 * np.random.default_rng(6).normal(size=150)
    lost = np.where(np.arange(150) < 30, 2.3 - 0.055 * np.arange(150), 2.3) + noise
    assert names(observed(training_loss=lost)) == ["WORSE_LEVEL"]


def test_a_margin_that_batches_keep_may_be_lost_but_a_loss_that_begins_at_0_can_only_rise() -> None:
    at = np.arange(RECORDS)
    kept = np.maximum(0.0, 0.05 * np.exp(-at / 60.0) - 0.012 + 0.01 * normal(7))
    risen = np.where(at < 200, kept, 0.1 + 0.02 * np.abs(normal(8)))
    assert names(observed(training_loss=risen)) == ["WORSE_LEVEL"]
    penalty = 0.02 * (1.0 - np.exp(-at / 60.0)) * (1.0 + 0.1 * normal(9))
    assert penalty[0] == 0.0 and names(observed(training_loss=penalty)) == []
    assert names(observed(training_loss=penalty[1:])) == ["WORSE_LEVEL"]


def test_a_validation_loss_that_falls_is_learning() -> None:
    noise = np.random.default_rng(3).normal(size=RECORDS)
    validation = np.where(np.arange(RECORDS) % 20 == 19, FALLING, math.nan)
    assert names(observed(training_loss=5.0 + noise, validation_loss=validation)) == []


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


@pytest.mark.parametrize("records", [100, 400, 495, 501])
def test_levels_that_come_in_turn_are_one_level(records: int) -> None:
    at = np.arange(records)
    turns = np.where(at % 2, 1.0, 0.6) * FALLING[np.minimum(at, RECORDS - 1)]
    assert "WORSE_LEVEL" not in names(observed(training_loss=turns))
    assert "WORSE_LEVEL" in names(observed(training_loss=np.where(at < 0.6 * records, turns, turns + 2.5)))


@pytest.mark.parametrize(
    ("losses", "dead"),
    [
        (FALLING[np.minimum(np.arange(RECORDS), 250)], True),
        (np.round(FALLING[np.minimum(np.arange(RECORDS), 250)], 1), False),
        (1.2345 + np.exp(-np.arange(RECORDS) / 5.0), False),
        (np.repeat(FALLING[::25], 25), False),
    ],
    ids=["frozen", "rounded", "converged", "told again in between"],
)
def test_a_loss_that_stands_still_to_its_last_digit_is_dead(losses: np.ndarray, dead: bool) -> None:
    found = [state for state in states_of(observed(training_loss=losses)) if state.name == "DEAD"]
    assert [state.since for state in found] == ([251] if dead else [])


@pytest.mark.parametrize("seed", range(0, 30, 2))
@pytest.mark.parametrize(("times", "worse"), [(3.0, True), (1.3, False)])
def test_a_validation_loss_that_multiplies_is_worse_though_training_has_converged(
    times: float, worse: bool, seed: int
) -> None:
    at = np.arange(RECORDS)
    held_out = np.where(at % 16 == 15, 1.1 + 0.01 * normal(seed), np.nan)
    held_out[250:] *= times
    converged = 1.0 + 0.05 * normal(seed + 1) + 2.0 * np.exp(-at / 4.0)
    found = names(observed(training_loss=converged, validation_loss=held_out))
    assert bool({"WORSE_VALIDATION", "OVERFITS"}.intersection(found)) == worse


def test_losses_that_are_not_above_0_say_nothing_of_learning() -> None:
    assert "NEVER_LEARNS" not in evidence_of(observed(training_loss=0.1 * normal(1)))


@pytest.mark.parametrize(
    ("loss", "norm", "dead"),
    [
        (0.0, math.inf, True),  # an old Trainer's disguise of NaN
        (math.inf, math.nan, True),
        (1.0, 0.0, True),
        (0.0, math.nan, True),  # no gradient norm: from 1 to 0 in one record
        (0.0, 0.5, False),  # learned by heart
        (1.0, 0.5, False),
    ],
)
def test_dead_is_a_loss_or_gradient_that_is_gone_for_good(loss: float, norm: float, dead: bool) -> None:
    losses, norms = FALLING.copy(), np.full(RECORDS, math.nan if math.isnan(norm) else 1.0)
    losses[300:], norms[300:] = loss, norm
    found = [state for state in states_of(observed(training_loss=losses, grad_norm=norms)) if state.name == "DEAD"]
    assert [state.since for state in found] == ([301] if dead else [])


def test_a_loss_that_comes_back_was_not_dead() -> None:
    losses = FALLING.copy()
    losses[300:399] = math.inf
    assert names(observed(training_loss=losses)) == []


def test_gradients_of_0_now_and_then_are_no_death() -> None:
    norms = np.ones(RECORDS)
    for start, length in ((50, 3), (120, 4), (200, 2), (300, 3), (395, 5)):
        norms[start : start + length] = 0.0
    assert names(observed(training_loss=FALLING, grad_norm=norms)) == []
    norms[350:] = 0.0
    assert names(observed(training_loss=FALLING, grad_norm=norms)) == ["DEAD"]


def test_a_loss_that_rounds_to_0_is_not_dead() -> None:
    losses = np.round(np.exp(-np.arange(RECORDS) / 25.0), 4)
    assert losses[-1] == 0.0
    assert "DEAD" not in names(observed(training_loss=losses))


@pytest.mark.parametrize(("rewards", "learns"), [(-FALLING, True), (np.ones(RECORDS), False)])
def test_an_agent_that_gets_more_reward_learns_whatever_its_loss_does(rewards: np.ndarray, learns: bool) -> None:
    flat = 2.3 + 0.05 * np.random.default_rng(1).normal(size=RECORDS)
    assert ("NEVER_LEARNS" not in names(observed(training_loss=flat, reward=rewards))) == learns


@pytest.mark.parametrize(("rewards", "worse"), [(-FALLING, False), (FALLING, True), (np.full(RECORDS, np.nan), True)])
def test_a_loss_that_rises_with_the_reward_of_an_agent_is_no_worse_level(rewards: np.ndarray, worse: bool) -> None:
    risen = np.where(np.arange(RECORDS) < 200, FALLING, 57.0 + np.random.default_rng(2).normal(size=RECORDS))
    assert ("WORSE_LEVEL" in names(observed(training_loss=risen, reward=rewards))) == worse


@pytest.mark.parametrize(("evaluated", "dead"), [(FALLING, False), (np.full(RECORDS, 2.3), True)])
def test_a_loss_of_0_is_not_dead_while_the_validation_loss_goes_on(evaluated: np.ndarray, dead: bool) -> None:
    losses = np.where(np.arange(RECORDS) < 100, FALLING, 0.0)
    assert ("DEAD" in names(observed(training_loss=losses, validation_loss=evaluated))) == dead
    told = [
        {"event": "VALIDATION", "step": step, "validation_loss": evaluated[step - 1]} for step in range(20, 401, 20)
    ]
    run = Run("run", {}, observed(training_loss=losses), told)
    assert ("DEAD" in [state.name for state in states_of(run)]) == dead


def overfitting(training: np.ndarray) -> Observations:
    """Validation every 10 records: down to record 200, and up again."""
    steps = np.arange(RECORDS)
    turned = 1.0 + np.abs(steps - 200) / 200.0 + 0.005 * np.random.default_rng(4).normal(size=RECORDS)
    return observed(training_loss=training, validation_loss=np.where(steps % 10 == 0, turned, math.nan))


def test_a_validation_loss_that_turns_up_overfits_where_the_training_loss_falls() -> None:
    (state,) = states_of(overfitting(3.0 * np.exp(-np.arange(RECORDS) / 200.0)))
    assert state.name == "OVERFITS"
    assert 180 <= state.since <= 220
    assert state.numbers["rise"] == pytest.approx(1.0, abs=0.1)
    rising = np.concatenate([FALLING[:200], FALLING[200] + np.arange(200) / 200.0])
    assert "OVERFITS" not in names(overfitting(rising))
    falling = 3.0 * np.exp(-np.arange(RECORDS) / 200.0)
    leapt = np.where(np.arange(RECORDS) < RECORDS // 2, falling, 20.0 * falling)  # it breaks, and falls again
    assert "OVERFITS" not in names(overfitting(leapt))
    shifted = np.where(np.arange(RECORDS) < 210, falling, falling + 3.0 * 0.9 ** (np.arange(RECORDS) - 210.0))
    assert "OVERFITS" not in names(overfitting(shifted))  # it breaks as the validation loss does, and is forgotten


@pytest.mark.parametrize("seed", [48, 69])
def test_the_lowest_of_losses_that_only_vary_is_no_rise(seed: int) -> None:
    """It lies below those after it because it was chosen; with it, the rise is significant."""
    at = np.arange(1200)
    level = 2.0 + 2.0 * np.exp(-at / 60.0) + 0.05 * np.random.default_rng(seed).normal(size=1200)
    columns = {"training_loss": 3.0 - at / 1000.0, "validation_loss": np.where(at % 10 == 9, level, np.nan)}
    assert not states_of(Observations(at, columns))


def test_a_run_whose_first_losses_alone_are_huge_does_not_overfit() -> None:
    steps = np.arange(48, 1441, 48)
    training = np.append([1285.181, 1.6731, 1.6896, 1.6921, 1.6993, 1.703], np.linspace(1.7055, 1.7032, 24))
    held_out = np.append([1.681, 1.6435, 1.6448, 1.6607, 1.6699, 1.6745], np.linspace(1.6768, 1.6792, 24))
    assert "OVERFITS" not in names(Observations(steps, {"training_loss": training, "validation_loss": held_out}))


def stepping_up(after: int, training: np.ndarray = FALLING) -> Observations:
    """Validation every 20 records: down to 0.5, and after record 300 so many times at 0.85."""
    due, steps = np.arange(9, RECORDS, 20), np.arange(RECORDS)
    losses = 0.5 + np.exp(-due / 60.0) + 0.001 * np.random.default_rng(5).normal(size=len(due))
    losses[14] += 0.004  # the last one before the step is not the lowest
    losses[15 : 15 + after] += 0.35
    held_out = np.full(RECORDS, math.nan)
    held_out[due] = losses
    return observed(training_loss=training, validation_loss=held_out).rows(steps < due[min(15 + after, 19)] + 1)


def test_a_validation_loss_that_steps_up_and_stays_is_worse_where_the_training_loss_falls_on() -> None:
    falling = 3.0 * np.exp(-np.arange(RECORDS) / 100.0)
    (state,) = states_of(stepping_up(5, falling))
    assert (state.name, state.since) == ("WORSE_VALIDATION", 310)
    assert state.numbers["level"] == pytest.approx(0.85, abs=0.03)
    assert not names(stepping_up(1, falling))  # a single one, and back
    rising = np.concatenate([falling[:300], falling[300] + 0.001 * np.arange(100)])
    assert "WORSE_VALIDATION" not in names(stepping_up(5, rising))


def test_a_validation_loss_that_is_that_of_another_task_does_not_overfit() -> None:
    after, due = np.arange(RECORDS) >= 200, np.arange(RECORDS) % 10 == 9
    held_out = np.where(due, 2.0 + after + 0.01 * np.sin(np.arange(RECORDS)), math.nan)
    columns = {"training_loss": 3.0 * np.exp(-np.arange(RECORDS) / 200.0), "validation_loss": held_out}
    planned = np.where(np.arange(RECORDS) == 200, 1.0, math.nan)
    assert names(observed(**columns)) == ["OVERFITS"]
    assert names(observed(**columns, planned_changes=planned)) == []


def test_a_gradient_that_grows_without_end_and_one_that_has_stopped() -> None:
    steps = np.arange(RECORDS)
    growing = np.exp(steps / 50.0 + 0.3 * normal(1))
    (state,) = states_of(observed(grad_norm=growing))
    assert state.name == "GRADIENT_GROWS"
    assert state.since == 201
    stopped = np.exp(np.minimum(steps, 250) / 50.0 + 0.3 * normal(1))
    assert names(observed(grad_norm=stopped)) == []


def test_a_worse_level_lasts() -> None:
    worse, spike = FALLING.copy(), FALLING.copy()
    worse[250:] += 1.0
    spike[250:300] += 1.0
    (state,) = states_of(observed(training_loss=worse))
    assert state.name == "WORSE_LEVEL"
    assert "has settled at about" in state.sentence
    assert 240 <= state.since <= 260
    assert names(observed(training_loss=spike)) == []


@pytest.mark.parametrize(("validation_rises", "found"), [(True, True), (False, False)])
def test_a_training_loss_that_climbs_by_design_is_no_worse_level(validation_rises: bool, found: bool) -> None:
    training = FALLING + np.where(np.arange(RECORDS) >= 250, 1.0, 0.0)
    validation = np.where(np.arange(RECORDS) % 10 == 9, training if validation_rises else FALLING, math.nan)
    assert ("WORSE_LEVEL" in names(observed(training_loss=training, validation_loss=validation))) == found


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


# --- how sure ---------------------------------------------------------------------------------------------------------


def test_the_false_alarm_rate_counts_healthy_runs() -> None:
    calibration = Calibration(runs=99, highest=(1.0, 2.0, 3.0))
    assert [calibration.false_alarm_rate(score) for score in (4.0, 3.0, 2.5, 2.0)] == [0.01, 0.02, 0.02, 0.03]
    assert calibration.false_alarm_rate(1.0) == 1.0  # others that are not kept may have as much


def test_every_state_can_be_reported_within_its_budget() -> None:
    assert set(calibrations()) == set(RECOGNISERS)
    for calibration in calibrations().values():
        assert calibration.false_alarm_rate(math.inf) <= BUDGET / 2
        assert list(calibration.highest) == sorted(calibration.highest)
        assert calibration.false_alarm_rate(calibration.highest[0]) > BUDGET


def test_a_stricter_budget_reports_less() -> None:
    dead = observed(training_loss=np.concatenate([FALLING, np.full(10, math.inf)]))
    (state,) = states_of(dead)
    assert states_of(dead, budget=state.false_alarm_rate) == [state]
    assert states_of(dead, budget=0.9 * state.false_alarm_rate) == []
    assert state.sure == 1.0 - state.false_alarm_rate


def test_a_run_may_be_given_whole_and_an_empty_one_is_in_no_state() -> None:
    run = rmetric.Run("run", {}, observed(training_loss=np.full(RECORDS, math.inf)))
    assert [state.name for state in rmetric.states_of(run)] == ["DEAD"]
    assert states_of(Observations(np.empty(0, dtype=np.int64))) == []


@given(any_observations(("training_loss", "validation_loss", "grad_norm", "uniform_gap")))
def test_any_numbers_give_states_of_strict_json(observations: Observations) -> None:
    for state in states_of(observations, budget=1.0):
        assert isinstance(state, State)
        assert int(observations.step[0]) <= state.since <= state.until == int(observations.step[-1])
        json.dumps(state.to_dict(), allow_nan=False)


# --- long runs, and replay --------------------------------------------------------------------------------------------


@given(any_observations(("training_loss", "validation_loss", "grad_norm"), max_size=60), st.integers(1, 60))
def test_what_is_kept_of_a_long_run_does_not_depend_on_its_pieces(observations: Observations, size: int) -> None:
    whole, pieces = History(most=8), History(most=8)
    whole.extend(observations)
    for start in range(0, len(observations), size):
        pieces.extend(observations.rows(slice(start, start + size)))
        pieces = History.of_state(pieces.state_dict(), most=8)
    singly = History(most=8)
    for observation in observations:
        singly.add(observation)
    kept = whole.observations
    assert len(kept) <= 16
    for same in (pieces.observations, singly.observations):
        assert kept.step.tolist() == same.step.tolist()
        for name in observations.columns:
            assert bits(kept[name]) == bits(same[name])
    if len(observations):
        assert kept.step[[0, -1]].tolist() == observations.step[[0, -1]].tolist()


def test_of_very_many_evaluations_neighbours_are_averaged() -> None:
    history = History(most=4)
    history.extend(observed(training_loss=np.ones(20)))
    for step in range(1, 12):
        history.note({"event": "VALIDATION", "step": step, "validation_loss": float(step)})
    kept = history.observations
    assert kept.step[kept.evaluated].tolist() == [2, 4, 6, 8, 9, 10, 11]
    assert kept["validation_loss"][kept.evaluated].tolist() == [1.5, 3.5, 5.5, 7.5, 9.0, 10.0, 11.0]


def test_a_long_dead_run_stays_dead() -> None:
    losses = np.concatenate([np.linspace(3.0, 1.0, 9001), np.zeros(9001)])
    history = History()
    history.extend(observed(training_loss=losses, grad_norm=np.where(losses > 0, 1.0, math.inf)))
    assert len(history.observations) <= 4097
    (state,) = states_of(history.observations)
    assert (state.name, state.until) == ("DEAD", 18002)
    assert 9002 <= state.since <= 9002 + 16  # means of eight


def test_a_long_run_is_dead_from_the_very_step_on_in_which_its_loss_ceased_to_be_finite() -> None:
    losses = np.linspace(3.0, 1.0, 9000)
    losses[[100, *range(7001, 9000)]] = math.inf
    history = History()
    history.extend(observed(training_loss=losses))
    (state,) = states_of(history.observations)
    assert (state.name, state.since, state.until) == ("DEAD", 7002, 9000)


def test_replay_says_in_which_state_a_log_ends(tmp_path: Path) -> None:
    losses = [*FALLING[:100].tolist(), *[0.0] * 20]
    lines = [
        {"step": step, "loss": loss, "grad_norm": 1.0 if loss else math.nan} for step, loss in enumerate(losses, 1)
    ]
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    replay = replay_log(path)
    assert [state.name for state in replay.states] == ["DEAD"]
    assert "- run: state: DEAD since step 101: the loss is exactly 0 where it was not finite" in overview_text([replay])
    assert json.loads(json.dumps(replay.to_dict(), allow_nan=False))["states"][0]["since"] == 101


REAL_RUNS = Path(__file__).parent / "data" / "real_runs"


@pytest.mark.parametrize("options", [[], ["--judge"]])
def test_a_calibration_of_no_run_is_refused(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("studies.states.fit.DATA", tmp_path)
    (out := tmp_path / "states.json").write_text("earlier", encoding="utf-8")
    assert fit_states([*options, "--out", str(out), "--jobs", "1"]) == 2
    error = capsys.readouterr().err
    assert "no healthy run has a score; give data sets by --data" in error and error.count("\n") == 1
    assert out.read_text(encoding="utf-8") == "earlier"


@pytest.mark.parametrize(("name", "fitted"), [("real_runs", True), ("mine", False)])
def test_who_is_judged_by_runs_of_its_own_is_told(
    name: str, fitted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).symlink_to(REAL_RUNS)
    assert fit_states(["--judge", "--data", str(tmp_path / name), "--jobs", "1"]) == 0
    assert ("is fitted to real_runs: judged by themselves" in capsys.readouterr().out) == fitted
