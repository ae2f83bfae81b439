from __future__ import annotations

import logging
import math
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rmetric import MetricsMonitor, TrainingMonitor, read_run
from rmetric.errors import UserError
from rmetric.monitor.metrics_monitor import STEPS_RISE
from rmetric.monitor.remarks import WORDS
from rmetric.monitor.reported_numbers import NO_NUMBER
from tests.helpers import printed_by
from tests.monitor.common import small_training, train

LOST = 200
"""Step in which the run below loses what it has learned."""


def reported(steps: range, **others: Any) -> Iterator[tuple[float, dict[str, Any]]]:
    """Loss, gradient norm and learning rate of a run that breaks in step :data:`LOST`."""
    noise = np.random.default_rng(1).normal(size=(1000, 2))
    for step in steps:
        broken = step >= LOST
        loss = 3.0 / (1.0 + 0.02 * step) ** 0.5 + 0.02 * noise[step, 0] + 4.0 * broken
        yield loss, {"grad_norm": math.exp(0.1 * noise[step, 1]) + 5.0 * broken, "learning_rate": 1e-3, **others}


def watched(log: Path, steps: range, monitor: MetricsMonitor | None = None) -> MetricsMonitor:
    monitor = monitor or MetricsMonitor(log=log, announce=False, hardware=False, clock=lambda: 0.0)
    for loss, numbers in reported(steps):
        monitor.step(loss, **numbers)
    return monitor


def test_a_run_that_breaks_is_told_in_its_log_within_three_steps(tmp_path: Path) -> None:
    told: list[Any] = []
    with MetricsMonitor(log=tmp_path / "run.jsonl", on_alert=told.append, announce=False, hardware=False) as monitor:
        for loss, numbers in reported(range(LOST + 20)):
            monitor.step(loss, **numbers)
    run = read_run(tmp_path / "run.jsonl")
    assert LOST < told[0].step <= LOST + 4  # counted from 1
    assert (told[0].detector, told[0].cause) == ("r_metric_robust", "off_course")
    assert run.config["backend"] == "reported"
    assert len(run.observations) == LOST + 20
    assert [*map(run.observations.has, ("training_loss", "grad_norm", "learning_rate", "update_rms"))] == [
        True, True, True, False,
    ]  # fmt: skip
    assert monitor.alerts == {"r_metric_robust": told[0].step}


def test_it_needs_no_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import rmetric\n"
        "with rmetric.MetricsMonitor(log='run.jsonl', announce=False, hardware=False) as monitor:\n"
        "    for step in range(60):\n"
        "        monitor.step(float('nan') if step == 50 else 1.0, grad_norm=1.0)\n"
        "print(monitor.alerts)"
    )
    assert printed_by(code) == "{'numerics': 51, 'r_metric_robust': 51}\n"


def test_a_resumed_run_has_the_log_of_one_that_was_not_interrupted(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole.jsonl", tmp_path / "parts.jsonl"
    uninterrupted = watched(whole, range(150))
    uninterrupted.state_dict()  # a checkpoint is no part of a step's time
    watched(whole, range(150, LOST + 20), uninterrupted).close()
    first = watched(parts, range(150))
    state = first.state_dict()
    first.detach()
    second = MetricsMonitor(log=parts, announce=False, hardware=False, clock=lambda: 0.0)
    second.load_state_dict(state)
    watched(parts, range(150, LOST + 20), second).close()
    assert parts.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("kind", [float, np.float32, np.asarray, torch.tensor, lambda value: np.array([value])])
def test_numbers_may_be_arrays_of_one(kind: Any) -> None:
    with MetricsMonitor(announce=False, hardware=False) as monitor:
        monitor.step(kind(2.5), grad_norm=kind(0.5), learning_rate=kind(0.25), update_rms=kind(0.125))
        monitor.validation(kind(3.0))
        monitor.reward(kind(1.0))
        monitor.step(kind(2.5))
    last = monitor.last
    assert last is not None
    assert (last.training_loss, last.validation_loss, last.reward) == (2.5, 3.0, 1.0)


def test_a_number_is_read_when_the_next_step_comes() -> None:
    class Late:
        def __init__(self) -> None:
            self.read = 0

        def __float__(self) -> float:
            self.read += 1
            return 1.0

    with MetricsMonitor(announce=False, hardware=False) as monitor:
        first, second = Late(), Late()
        monitor.step(first)
        assert first.read == 0
        monitor.step(second)
        assert (first.read, second.read) == (1, 0)


def test_what_is_no_number_is_told_once_and_not_measured(caplog: pytest.LogCaptureFixture) -> None:
    with MetricsMonitor(hardware=False) as monitor:
        for _ in range(3):
            monitor.step("high", grad_norm=[1.0, 2.0])
        monitor.validation(None)  # type: ignore[arg-type]
    last = monitor.last
    assert last is not None
    assert math.isnan(last["training_loss"])
    assert math.isnan(last["grad_norm"])
    warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings[:2] == [WORDS["no loss"], NO_NUMBER.format("grad_norm")]
    assert len(warnings) == 3  # and the verdict


def test_steps_may_begin_at_0_and_stand_for_several() -> None:
    seconds = iter([0.0, 5.0, 10.0, 15.0])
    with MetricsMonitor(announce=False, hardware=False, clock=lambda: next(seconds)) as monitor:
        for step in (0, 10, 20):
            monitor.step(1.0, step=np.int64(step))
    last = monitor.last
    assert last is not None
    assert (last.step, last.step_time_s) == (20, 0.5)


def test_steps_may_begin_at_0_after_a_state_from_before_the_first(caplog: pytest.LogCaptureFixture) -> None:
    with MetricsMonitor(announce=False, hardware=False) as first:
        state = first.state_dict()
    with MetricsMonitor(announce=False, hardware=False) as second:
        second.load_state_dict(state)
        for step in (0, 1):
            second.step(1.0, step=step)
            assert second.step_number == step
    assert STEPS_RISE not in caplog.messages


def test_a_monitor_of_either_kind_goes_on_from_a_state_of_the_other(tmp_path: Path) -> None:
    log, model_and_optimizer = tmp_path / "run.jsonl", small_training()
    first = watched(log, range(10))
    state = first.state_dict()
    first.close()
    second = TrainingMonitor(*model_and_optimizer, log=log, announce=False, hardware=False)
    second.load_state_dict(state)
    train(second, *model_and_optimizer, range(10, 20))
    state = second.state_dict()
    second.close()
    third = MetricsMonitor(log=log, announce=False, hardware=False)
    third.load_state_dict(state)
    watched(log, range(20, 30), third).close()
    observations = read_run(log).observations
    assert observations.step.tolist() == [*range(1, 31)]
    assert np.isfinite(observations["update_rms"][11:20]).all()


def test_a_step_that_is_not_after_the_one_before_is_counted_on(caplog: pytest.LogCaptureFixture) -> None:
    with MetricsMonitor(hardware=False) as monitor:
        for step in (5, 6, 6, 3):
            monitor.step(1.0, step=step)
    assert monitor.step_number == 8
    assert caplog.messages.count(STEPS_RISE) == 1


@pytest.mark.parametrize("step", [math.nan, math.inf, -1, 2**60, "a", 1j])
def test_no_step_breaks_a_loop(step: Any, caplog: pytest.LogCaptureFixture) -> None:
    with MetricsMonitor(hardware=False) as monitor:
        for number in (3, step, step):
            monitor.step(1.0, step=number)
    assert monitor.step_number == 5
    assert caplog.messages.count(STEPS_RISE) == 1


def test_a_number_that_its_owner_changes_later_is_the_one_that_was_reported(tmp_path: Path) -> None:
    buffer, sum_of_losses = np.zeros(1), torch.zeros(1)
    with MetricsMonitor(log=tmp_path / "run.jsonl", announce=False, hardware=False) as monitor:
        for step in range(4):
            buffer[0] = 10 + step
            sum_of_losses += 1.0
            monitor.step(buffer, grad_norm=sum_of_losses)
            sum_of_losses.zero_()
    seen = read_run(tmp_path / "run.jsonl").observations
    assert seen["training_loss"].tolist() == [10.0, 11.0, 12.0, 13.0]
    assert seen["grad_norm"].tolist() == [1.0] * 4


class Kept(torch.autograd.Function):
    """An activation that the graph keeps."""

    @staticmethod
    def forward(context: Any, value: torch.Tensor) -> torch.Tensor:
        context.kept = type("Activation", (), {})()
        return 2.0 * value


def test_a_tensor_keeps_no_graph() -> None:
    loss = Kept.apply(torch.ones((), requires_grad=True))
    kept = weakref.ref(loss.grad_fn.kept)
    monitor = MetricsMonitor(announce=False, hardware=False)
    monitor.step(loss)
    del loss
    assert kept() is None
    monitor.close()


def test_a_gradient_norm_below_0_is_one_that_is_not_finite() -> None:
    with MetricsMonitor(announce=False, hardware=False) as monitor:
        for step in range(60):
            monitor.step(2.0 - 0.001 * step, grad_norm=-1.0 if step >= 50 else 1.0)
    assert monitor.alerts["numerics"] == 51


def test_what_a_dead_attempt_has_logged_is_dropped_where_steps_are_far_apart(tmp_path: Path) -> None:
    log, options = tmp_path / "run.jsonl", {"announce": False, "hardware": False, "clock": lambda: 0.0}
    first = MetricsMonitor(log=log, **options)
    for step in range(0, 50, 10):
        first.step(1.0, step=step)
        if step == 20:
            state = first.state_dict()
    first.detach()
    second = MetricsMonitor(log=log, **options)
    second.load_state_dict(state)
    second.step(3.0, step=40)
    second.close()
    seen = read_run(log).observations
    assert seen.step.tolist() == [0, 10, 20, 40]
    assert seen["training_loss"].tolist() == [1.0, 1.0, 1.0, 3.0]


@pytest.mark.parametrize("first", [0, 1, 5, 100])
def test_an_evaluation_before_the_first_step_is_kept(first: int, tmp_path: Path) -> None:
    with MetricsMonitor(log=tmp_path / "run.jsonl", announce=False, hardware=False) as monitor:
        monitor.validation(4.0)
        monitor.step(1.0, step=first)
    assert read_run(tmp_path / "run.jsonl").evaluations()[1].tolist() == [4.0]


@pytest.mark.parametrize("options", [{"detectors": ["nobody"]}, {"log": 3}, {"on_alert": 3}, {"hardware": "gpu"}])
def test_a_wrong_option_is_one_line_before_training(options: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        MetricsMonitor(**options)
