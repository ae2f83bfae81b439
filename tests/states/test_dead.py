"""DEAD: a loss or gradient that is gone for good."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmetric.records import Run
from rmetric.states import History, states_of
from tests.states.common import FALLING, RECORDS, names, observed


def test_gradients_of_zero_are_health_where_a_margin_is_kept_by_all() -> None:
    losses = np.where(np.arange(RECORDS) < 200, FALLING, 0.0)
    norms = np.where(losses > 0.0, 1.0, 0.0)
    assert names(observed(training_loss=losses, grad_norm=norms)) == ["DEAD"]
    solved = losses.copy()
    solved[[150, 170]] = 0.0  # single batches first
    assert not names(observed(training_loss=solved, grad_norm=np.where(solved > 0.0, 1.0, 0.0)))


@pytest.mark.parametrize("zero_before", [False, True])
def test_an_evaluation_behind_the_last_record_is_no_loss_that_comes_back(zero_before: bool) -> None:
    losses = np.where(np.arange(RECORDS) < 200, FALLING, 0.0)
    losses[150] *= not zero_before
    norms, evaluated = np.where(losses > 0.0, 1.0, 0.0), np.full(RECORDS, math.nan)
    losses[-1], norms[-1], evaluated[-1] = math.nan, math.nan, 0.7
    found = names(observed(training_loss=losses, grad_norm=norms, validation_loss=evaluated))
    assert found == ([] if zero_before else ["DEAD"])


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


@pytest.mark.parametrize(("last", "dead"), [(2.0, False), (math.inf, True), (math.nan, True)])
def test_a_loss_that_is_lost_while_evaluations_fall_is_not_dead(last: float, dead: bool) -> None:
    losses, evaluated = FALLING.copy(), np.where(np.arange(RECORDS) % 20 == 0, FALLING, math.nan)
    losses[200:] = math.inf
    evaluated[[380, 399]] = last
    if math.isnan(last):  # evaluated before that alone
        evaluated[200:] = math.nan
    found = names(observed(training_loss=losses, validation_loss=evaluated))
    assert ("DEAD" in found) == dead


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


@pytest.mark.parametrize(("evaluated", "dead"), [(FALLING, False), (np.full(RECORDS, 2.3), True)])
def test_a_loss_of_0_is_not_dead_while_the_validation_loss_goes_on(evaluated: np.ndarray, dead: bool) -> None:
    losses = np.where(np.arange(RECORDS) < 100, FALLING, 0.0)
    assert ("DEAD" in names(observed(training_loss=losses, validation_loss=evaluated))) == dead
    told = [
        {"event": "VALIDATION", "step": step, "validation_loss": evaluated[step - 1]} for step in range(20, 401, 20)
    ]
    run = Run("run", {}, observed(training_loss=losses), told)
    assert ("DEAD" in [state.name for state in states_of(run)]) == dead


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
