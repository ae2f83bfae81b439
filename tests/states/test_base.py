"""States of any run: none in a healthy one, and how rare each is."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given

import rmetric
from rmetric.records import Observations
from rmetric.replay import replay_log
from rmetric.replay.overview import overview_text
from rmetric.states import BUDGET, RECOGNISERS, Calibration, State, calibrations, states_of
from tests.helpers import any_observations
from tests.states.common import FALLING, RECORDS, names, normal, observed


def test_a_healthy_run_is_in_no_state() -> None:
    assert names(observed(training_loss=FALLING, grad_norm=np.exp(normal(1)))) == []


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


@pytest.mark.parametrize(("broke", "told"), [(200, ["DEAD", "WORSE_LEVEL"]), (345, ["DEAD"])])
def test_what_a_run_was_in_before_another_state_began_did_not_follow_from_it(broke: int, told: list[str]) -> None:
    loss = FALLING.copy()
    loss[broke:] *= 3.0
    loss[350:] = math.inf
    states = states_of(observed(training_loss=loss))
    assert [state.name for state in states] == told
    assert [state.since for state in states] == [351, broke + 1][: len(told)]


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


@example(observed(training_loss=np.full(RECORDS, math.inf)))  # surely in a state
@given(any_observations(("training_loss", "validation_loss", "grad_norm", "uniform_gap")))
def test_any_numbers_give_states_of_strict_json(observations: Observations) -> None:
    for state in states_of(observations, budget=1.0):
        assert isinstance(state, State)
        assert int(observations.step[0]) <= state.since <= state.until == int(observations.step[-1])
        json.dumps(state.to_dict(), allow_nan=False)


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
