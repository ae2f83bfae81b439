"""OVERFITS: a validation loss that turns up where the training loss falls."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmetric.diagnosis import diagnose
from rmetric.records import Observations, Run
from rmetric.states import states_of
from tests.states.common import FALLING, RECORDS, names, observed

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


@pytest.mark.parametrize("leap", [210, 195])
def test_a_training_loss_that_leaps_as_or_just_before_the_validation_loss_turns_does_not_overfit(leap: int) -> None:
    """However soon the leap is forgotten; evaluations lag behind training batches that have another meaning."""
    at = np.arange(RECORDS)
    falling = 3.0 * np.exp(-at / 200.0)
    assert "OVERFITS" not in names(overfitting(falling + np.where(at < leap, 0.0, 3.0 * 0.9 ** (at - float(leap)))))


def test_a_hard_batch_is_no_leap() -> None:
    at = np.arange(RECORDS)
    hard = np.where((at == 195) | (at == 206), 3.0, 0.0)
    assert names(overfitting(3.0 * np.exp(-at / 200.0) + hard)) == ["OVERFITS"]


@pytest.mark.parametrize(("factor", "overfits"), [(1.0, True), (0.3, True), (0.001, False), (-100.0, False)])
def test_a_training_loss_that_leaps_down_by_orders_of_magnitude_is_another_one(factor: float, overfits: bool) -> None:
    at = np.arange(RECORDS)
    falling = 3.0 * np.exp(-at / 200.0) * np.where(at > 250, factor, 1.0)
    held_out = 1.0 + 0.002 * np.cos(at / 10.0 * np.pi) + 0.3 * np.sqrt(np.clip(at - 250, 0, None))
    held_out[250] = 0.99
    columns = {"training_loss": falling, "validation_loss": np.where(at % 10 == 0, held_out, math.nan)}
    assert ("OVERFITS" in names(observed(**columns))) is overfits


def test_a_training_loss_that_falls_with_each_epoch_may_overfit() -> None:
    """Examples that come again are known better at once: the loss is flat within an epoch, and falls at its end."""
    at = np.arange(800)
    levels = np.array([1.1, 0.95, 0.62, 0.36, 0.2, 0.1, 0.06, 0.04])[at // 100]
    loss = levels * np.exp(np.random.default_rng(0).normal(0.0, 0.02, 800))
    held_out = np.where(at % 100 == 99, np.array([1.2, 1.18, 1.22, 1.3, 1.45, 1.65, 1.9, 2.1])[at // 100], math.nan)
    found = states_of(Observations(at, {"training_loss": loss, "validation_loss": held_out}))
    assert [(state.name, state.since) for state in found] == [("OVERFITS", 199)]


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


def test_a_validation_loss_that_is_that_of_another_task_does_not_overfit() -> None:
    after, due = np.arange(RECORDS) >= 200, np.arange(RECORDS) % 10 == 9
    held_out = np.where(due, 2.0 + after + 0.01 * np.sin(np.arange(RECORDS)), math.nan)
    columns = {"training_loss": 3.0 * np.exp(-np.arange(RECORDS) / 200.0), "validation_loss": held_out}
    planned = np.where(np.arange(RECORDS) == 200, 1.0, math.nan)
    assert names(observed(**columns)) == ["OVERFITS"]
    assert names(observed(**columns, planned_changes=planned)) == []
