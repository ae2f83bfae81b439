"""Steps between records chosen by what a record costs: the choice, the log, a resume, what it does not go with."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rmetric.errors import UserError
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.record_interval import CHECKED, INTERVALS, RARE, REST, SHARE, TRIED, RecordInterval, interval
from rmetric.monitor.repair import SkipUpdate
from rmetric.replay import replay_log
from tests.monitor.common import events_of, small_training, train

CHOSEN = CHECKED + TRIED


def chosen_for(cost_s: float, step_s: float) -> RecordInterval:
    """A choice among records and steps that all take the same."""
    clock = itertools.count()
    found = RecordInterval("auto", now=lambda: next(clock) * cost_s)
    for step in range(1, CHOSEN + 1):
        assert found.open and found.due(step)
        with found.timed(step):
            pass
        found.step_took(step_s)
        found.choose()
    return found


@pytest.mark.parametrize("cost_s", [1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("step_s", [0.015, 0.2, 3.0, 60.0])
def test_it_is_the_smallest_by_which_the_monitor_keeps_its_share(cost_s: float, step_s: float) -> None:
    def share(steps: int) -> float:
        return (REST * cost_s + RARE * cost_s / steps) / (step_s - cost_s)

    found = chosen_for(cost_s, step_s)
    assert not found.open and found.steps in INTERVALS
    assert share(found.steps) <= SHARE or found.steps == INTERVALS[-1]
    smaller = [steps for steps in INTERVALS if steps < found.steps]
    assert not smaller or share(smaller[-1]) > SHARE
    assert [step for step in range(1, 1001) if found.due(step)] == [*range(found.steps, 1001, found.steps)]


def test_single_slow_steps_and_records_change_nothing() -> None:
    times = itertools.cycle([0.0, 0.001, 0.0, 0.001, 0.0, 0.9])
    costs = itertools.accumulate(itertools.chain.from_iterable(zip(itertools.repeat(0.0), times, strict=False)))
    found = RecordInterval("auto", now=lambda: next(costs))
    for step in range(1, CHOSEN + 1):
        with found.timed(step):
            pass
        found.step_took(float("nan") if step % 5 == 0 else 30.0 if step % 7 == 0 else 0.1)
    assert not found.choose() or found.steps <= interval(0.001, 0.1)


def test_a_number_is_kept_as_it_is() -> None:
    found = RecordInterval(7)
    with found.timed(100):
        pass
    assert not found.choose() and found.steps == 7 and not found.open


def test_the_log_says_which_interval_was_chosen_and_a_resumed_run_keeps_it(tmp_path: Path) -> None:
    model, optimizer = small_training()
    log, clock = tmp_path / "run.jsonl", itertools.count()
    options: dict[str, Any] = {"log": log, "announce": False, "hardware": False, "record_every": "auto"}
    # A step of 10 ms by the monitor's clock, a record of some tenths of a millisecond by the real one.
    monitor = TrainingMonitor(model, optimizer, **options, clock=lambda: next(clock) * 0.01)
    train(monitor, model, optimizer, range(1, 801))
    state = monitor.state_dict()
    monitor.detach()
    (told,) = events_of(log, "RECORD_INTERVAL")
    every = told["steps"]
    assert told["step"] == CHOSEN + 1 and every in INTERVALS[2:]
    records = events_of(log, "METRICS")
    expected = [*range(1, CHOSEN + 1), *(step for step in range(CHOSEN + 1, 801) if step % every == 0)]
    assert [record["step"] for record in records] == expected
    assert "grad_agreement" in records[CHOSEN - 1]
    assert all("grad_agreement" not in record and record["update_rms"] > 0.0 for record in records[CHOSEN:])
    resumed = TrainingMonitor(model, optimizer, **options)
    resumed.load_state_dict(state)
    train(resumed, model, optimizer, range(801, 1001))
    resumed.close()
    later = [record["step"] for record in events_of(log, "METRICS") if record["step"] > 800]
    assert later == [step for step in range(801, 1001) if step % every == 0]


@pytest.mark.parametrize("leave", [TrainingMonitor.close, TrainingMonitor.detach])
def test_a_last_loss_that_is_not_finite_has_a_record_and_fails_the_run(
    tmp_path: Path, leave: Callable[[TrainingMonitor], None]
) -> None:
    model, optimizer = small_training()
    log = tmp_path / "run.jsonl"
    monitor = TrainingMonitor(model, optimizer, log=log, announce=False, hardware=False, record_every=50)
    train(monitor, model, optimizer, range(1, 120))
    with torch.no_grad():
        next(model.parameters()).fill_(math.nan)
    train(monitor, model, optimizer, range(120, 131))
    monitor.validation(math.nan)
    leave(monitor)
    *_, before, last = events_of(log, "METRICS")
    assert (before["step"], before["is_nan"], last["step"], last["is_nan"]) == (100, False, 130, True)
    assert monitor.alerts["numerics"] == 130
    replayed = replay_log(log).alerts
    assert monitor.alerts == {name: replayed[name] for name in monitor.alerts}
    failures = [{"event": "EXPERIMENT_FAILURE", "step": 130, "reason": "NAN_LOSS"}]
    assert events_of(log, "EXPERIMENT_FAILURE") == (failures if leave is TrainingMonitor.close else [])


def test_a_last_loss_that_is_finite_again_has_a_record_and_one_that_always_was_has_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, optimizer = small_training()
    log = tmp_path / "run.jsonl"
    monitor = TrainingMonitor(model, optimizer, log=log, hardware=False, record_every=50)
    train(monitor, model, optimizer, range(1, 50))
    monitor.step(math.nan)
    train(monitor, model, optimizer, range(51, 61))
    monitor.close()
    assert [record["step"] for record in events_of(log, "METRICS")] == [50, 60]
    assert events_of(log, "EXPERIMENT_SUCCESS")
    with TrainingMonitor(model, optimizer, hardware=False, record_every=50) as monitor:
        train(monitor, model, optimizer, range(1, 120))
    assert monitor.last is not None and monitor.last.step == 100
    assert "no alert in 2 records up to step 100" in caplog.text


def test_an_interval_of_1_that_was_chosen_is_kept_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmetric.monitor.record_interval.interval", lambda *_: 1)
    model, optimizer = small_training()
    options: dict[str, Any] = {"announce": False, "hardware": False, "record_every": "auto"}
    with TrainingMonitor(model, optimizer, **options) as monitor:
        train(monitor, model, optimizer, range(1, CHOSEN + 5))
        state = monitor.state_dict()
    monkeypatch.setattr("rmetric.monitor.record_interval.interval", lambda *_: 500)
    with TrainingMonitor(model, optimizer, **options) as resumed:
        resumed.load_state_dict(state)
        train(resumed, model, optimizer, range(CHOSEN + 5, CHOSEN + 61))
    assert resumed.last is not None and resumed.last.step == CHOSEN + 60


def test_an_epoch_in_order_of_which_fewer_batches_are_looked_at_has_not_become_shorter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmetric.monitor.record_interval.interval", lambda *_: 5)
    model, optimizer = small_training()
    log = tmp_path / "run.jsonl"
    monitor = TrainingMonitor(model, optimizer, log=log, announce=False, hardware=False, record_every="auto")
    for step in range(1, 301):
        train(monitor, model, optimizer, range(step % 80, step % 80 + 1))
    monitor.close()
    assert len(events_of(log, "RECORD_INTERVAL")) == 1
    assert events_of(log, "SETTING_CHANGED") == []


@pytest.mark.parametrize("option", [{"sync": True}, {"policy": SkipUpdate()}, {"mechanism": "auto"}])
@pytest.mark.parametrize("every", [10, "auto"])
def test_what_looks_at_every_step_has_a_record_of_every_step(option: dict[str, Any], every: Any) -> None:
    (name,) = option
    with pytest.raises(UserError, match=f"{name} looks at every step; .* record_every at 1, not {every!r}"):
        TrainingMonitor(*small_training(), record_every=every, **option)


@pytest.mark.parametrize("steps", [0, True, 2.5, "often"])
def test_anything_else_is_told_of_before_training(steps: Any) -> None:
    with pytest.raises(UserError, match="record_every must be a whole number of steps, at least 1"):
        TrainingMonitor(*small_training(), record_every=steps)
