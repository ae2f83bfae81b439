from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rmetric import MetricsMonitor, read_run
from rmetric.errors import UserError
from rmetric.monitor.metrics_monitor import STEPS_RISE
from rmetric.monitor.remarks import WORDS
from tests.helpers import printed_by

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
    assert warnings[:2] == [WORDS["no loss"], "grad_norm= takes one real number; it is ignored"]
    assert len(warnings) == 3  # and the verdict


def test_steps_may_begin_at_0_and_stand_for_several() -> None:
    seconds = iter([0.0, 5.0, 10.0, 15.0])
    with MetricsMonitor(announce=False, hardware=False, clock=lambda: next(seconds)) as monitor:
        for step in (0, 10, 20):
            monitor.step(1.0, step=np.int64(step))
    last = monitor.last
    assert last is not None
    assert (last.step, last.step_time_s) == (20, 0.5)


def test_a_step_that_is_not_after_the_one_before_is_counted_on(caplog: pytest.LogCaptureFixture) -> None:
    with MetricsMonitor(hardware=False) as monitor:
        for step in (5, 6, 6, 3):
            monitor.step(1.0, step=step)
    assert monitor.step_number == 8
    assert caplog.messages.count(STEPS_RISE) == 1


@pytest.mark.parametrize("options", [{"detectors": ["nobody"]}, {"log": 3}, {"on_alert": 3}, {"hardware": "gpu"}])
def test_a_wrong_option_is_one_line_before_training(options: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        MetricsMonitor(**options)
