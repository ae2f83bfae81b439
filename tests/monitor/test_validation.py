"""A validation loss belongs to the step after which it was measured: in the log, after a resume, in a replay."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rmetric.diagnosis import diagnose
from rmetric.log_reader import read_log
from rmetric.monitor import Alert, TrainingMonitor
from rmetric.monitor.repair import RecomputeStep
from rmetric.monitor.sinks.base import points
from tests.helpers import lines_of
from tests.monitor.common import events_of, small_training, train
from tests.replay.logs import drawn

MODES: list[dict[str, Any]] = [{}, {"sync": True}, {"policy": RecomputeStep(rehearsal=False)}]


def lines(log: Path) -> list[tuple[str, int]]:
    """Kind and step of the evaluations and records of a log, in its order."""
    events = lines_of(log.read_bytes())
    return [(event["event"], event["step"]) for event in events if event["event"] in ("METRICS", "VALIDATION")]


@pytest.mark.parametrize("options", MODES, ids=["late", "sync", "policy"])
def test_evaluations_stand_at_their_own_step_the_last_one_too(tmp_path: Path, options: dict[str, Any]) -> None:
    log = tmp_path / "run.jsonl"
    model, optimizer = small_training()
    with TrainingMonitor(model, optimizer, log=log, hardware=False, **options) as monitor:
        monitor.validation(5.0)  # before the first step
        train(monitor, model, optimizer, range(1, 4))
        monitor.validation(4.0)
        train(monitor, model, optimizer, range(4, 6))
        monitor.validation(torch.tensor(3.0))
        monitor.state_dict()
    kinds = [("METRICS", step) for step in (1, 2, 3)] + [("VALIDATION", 3)] + [("METRICS", step) for step in (4, 5)]
    assert lines(log) == [("VALIDATION", 0), *kinds, ("VALIDATION", 5)]
    run = read_log(log)
    steps, losses = run.evaluations()
    assert steps.tolist() == [0, 3, 5] and losses.tolist() == [5.0, 4.0, 3.0]
    # What detectors see is the past alone: the record after an evaluation is the first that has it.
    assert run.observations["validation_loss"].tolist() == [5.0, 5.0, 5.0, 4.0, 4.0]


def test_a_replay_draws_them_at_their_own_step(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    model, optimizer = small_training()
    with TrainingMonitor(model, optimizer, log=log, hardware=False) as monitor:
        train(monitor, model, optimizer, range(1, 4))
        monitor.validation(4.0)
        train(monitor, model, optimizer, range(4, 6))
        monitor.validation(3.0)
    curve = drawn(log)[1].series["validation_loss"]
    assert curve.steps.tolist() == [3, 5] and curve.values.tolist() == [4.0, 3.0]


def test_a_log_without_such_events_is_drawn_where_its_records_have_a_new_loss(tmp_path: Path) -> None:
    log = tmp_path / "old.jsonl"
    model, optimizer = small_training()
    with TrainingMonitor(model, optimizer, log=log, hardware=False) as monitor:
        for step in range(1, 6):
            train(monitor, model, optimizer, [step])
            monitor.validation(5.0 - step // 2)
    kept = [line for line in log.read_text().splitlines(keepends=True) if '"VALIDATION"' not in line]
    log.write_text("".join(kept))
    curve = drawn(log)[1].series["validation_loss"]
    assert curve.steps.tolist() == [2, 3, 5] and curve.values.tolist() == [5.0, 4.0, 3.0]
    assert read_log(log).evaluations()[0].tolist() == [2, 3, 5]


@pytest.mark.parametrize("checkpoint_first", [False, True])
def test_a_resumed_run_writes_the_same_lines(tmp_path: Path, checkpoint_first: bool) -> None:
    def begin(name: str) -> tuple[TrainingMonitor, Any, Any]:
        model, optimizer = small_training()
        options: dict[str, Any] = {"log": tmp_path / name, "hardware": False, "clock": lambda: 0.0}
        return TrainingMonitor(model, optimizer, **options), model, optimizer

    def middle(monitor: TrainingMonitor) -> dict[str, Any]:
        if checkpoint_first:
            return monitor.state_dict()
        monitor.validation(4.0)
        return monitor.state_dict()

    straight, model, optimizer = begin("straight.jsonl")
    train(straight, model, optimizer, range(1, 5))
    middle(straight)
    if checkpoint_first:
        straight.validation(4.0)
    train(straight, model, optimizer, range(5, 9))
    straight.close()

    first, model, optimizer = begin("resumed.jsonl")
    train(first, model, optimizer, range(1, 5))
    state = middle(first)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    first.validation(7.0)  # after the checkpoint: lost with the crash
    train(first, model, optimizer, range(5, 7))
    first.detach()

    second, model, optimizer = begin("resumed.jsonl")
    model.load_state_dict(weights)
    second.load_state_dict(state)
    if checkpoint_first:
        second.validation(4.0)  # the loop does it again
    train(second, model, optimizer, range(5, 9))
    second.close()
    assert (tmp_path / "resumed.jsonl").read_bytes() == (tmp_path / "straight.jsonl").read_bytes()


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("leave", [TrainingMonitor.close, TrainingMonitor.detach])
def test_an_evaluation_after_the_last_record_that_is_not_finite_is_an_alert(
    tmp_path: Path, every: int, leave: Callable[[TrainingMonitor], None]
) -> None:
    log, told = tmp_path / "run.jsonl", list[Alert]()
    model, optimizer = small_training()
    monitor = TrainingMonitor(model, optimizer, log=log, hardware=False, record_every=every, on_alert=told.append)
    train(monitor, model, optimizer, range(1, 50))
    monitor.validation(0.5)
    train(monitor, model, optimizer, range(50, 51))
    monitor.validation(math.nan)
    leave(monitor)
    (alert,) = events_of(log, "ALERT")
    assert (alert["step"], alert["detector"], alert["at_end"]) == (50, "numerics", True)
    assert alert["message"].startswith("Step 50: the validation loss is not finite (found by broken numbers).")
    assert monitor.alerts == {"numerics": 50} and [alert.message for alert in told] == [alert["message"]]
    (finding,) = diagnose(log).findings
    assert (finding.name, finding.severity, finding.step, finding.until) == ("NOT_FINITE", "error", 50, 50)


def test_a_run_that_goes_on_after_such_an_end_tells_of_it_once(tmp_path: Path) -> None:
    def begin() -> tuple[TrainingMonitor, Any, Any]:
        model, optimizer = small_training()
        return TrainingMonitor(model, optimizer, log=tmp_path / "run.jsonl", hardware=False), model, optimizer

    first, model, optimizer = begin()
    train(first, model, optimizer, range(1, 41))
    first.validation(math.nan)
    state = first.state_dict()
    first.close()
    second, model, optimizer = begin()
    second.load_state_dict(state)
    train(second, model, optimizer, range(41, 101))
    second.validation(0.4)
    second.close()
    assert [alert["step"] for alert in events_of(tmp_path / "run.jsonl", "ALERT")] == [41]
    assert diagnose(tmp_path / "run.jsonl").severity == "warning"


def test_a_curve_has_a_validation_loss_once_and_at_its_step() -> None:
    record = {"event": "METRICS", "step": 4, "training_loss": 2.0, "validation_loss": 3.0}
    assert points(record) == {"training_loss": 2.0}
    assert points({"event": "VALIDATION", "step": 3, "validation_loss": 3.0}) == {"validation_loss": 3.0}
    assert points({"event": "ALERT", "step": 3, "score": 3.0}) == {}


def test_an_evaluation_between_two_records_has_one_line_after_a_resume(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    model, optimizer = small_training()
    monitor = TrainingMonitor(model, optimizer, log=log, hardware=False, record_every=5)
    train(monitor, model, optimizer, range(1, 12))
    monitor.validation(0.5)
    train(monitor, model, optimizer, range(12, 13))
    state = monitor.state_dict()
    monitor.detach()
    monitor = TrainingMonitor(model, optimizer, log=log, hardware=False, record_every=5)
    monitor.load_state_dict(state)
    train(monitor, model, optimizer, range(13, 16))
    monitor.close()
    assert [step for kind, step in lines(log) if kind == "VALIDATION"] == [11]
    assert read_log(log).observations["validation_loss"].tolist()[-1] == 0.5
