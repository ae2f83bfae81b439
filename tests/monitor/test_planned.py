"""Changes of a training that its user announces: in the log, in the record, and what they mean for alerts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rmetric import read_run
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.remarks import ANNOUNCED_TOO_OFTEN
from tests.monitor.common import events_of

Change = Callable[[TrainingMonitor, nn.Module], None]
CHANGED = 150


def trained(change: Change, log: Path | None = None, steps: int = 260, **options: Any) -> TrainingMonitor:
    """A linear model learns a sum; from step 150 on the target is another, after ``change``."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    draws = torch.Generator().manual_seed(1)
    with TrainingMonitor(model, optimizer, log=log, hardware=False, announce=False, **options) as monitor:
        for step in range(1, steps + 1):
            if step == CHANGED:
                change(monitor, model)
            inputs = torch.randn(16, 4, generator=draws)
            target = inputs.sum(1, keepdim=True) * (1.0 if step < CHANGED else -6.0)
            target = target + 0.3 * torch.randn(16, 1, generator=draws)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), target)
            loss.backward()
            monitor.step(loss)
            optimizer.step()
    return monitor


def nothing(monitor: TrainingMonitor, model: nn.Module) -> None:
    """A change that nobody announces."""


def announced(monitor: TrainingMonitor, model: nn.Module) -> None:
    monitor.planned("another target")


@pytest.mark.slow
def test_a_change_alerts_unless_it_is_announced(tmp_path: Path) -> None:
    assert CHANGED <= trained(nothing).alerts["r_metric_robust"] <= CHANGED + 4
    assert trained(announced, tmp_path / "run.jsonl").alerts == {}
    assert events_of(tmp_path / "run.jsonl", "PLANNED_CHANGE") == [
        {"event": "PLANNED_CHANGE", "step": CHANGED, "what": "another target"}
    ]
    records = events_of(tmp_path / "run.jsonl", "METRICS")
    assert [(line["step"], line["planned_changes"]) for line in records if "planned_changes" in line] == [
        (CHANGED, 1.0)
    ]
    assert read_run(tmp_path / "run.jsonl").observations["planned_changes"][CHANGED - 1] == 1.0


def test_a_record_of_several_steps_has_all_changes_since_the_one_before(tmp_path: Path) -> None:
    def twice(monitor: TrainingMonitor, model: nn.Module) -> None:
        monitor.planned("another target")
        monitor.planned("and a larger batch")

    trained(twice, tmp_path / "run.jsonl", record_every=20)
    assert [line["step"] for line in events_of(tmp_path / "run.jsonl", "PLANNED_CHANGE")] == [CHANGED, CHANGED]
    records = events_of(tmp_path / "run.jsonl", "METRICS")
    assert [(line["step"], line["planned_changes"]) for line in records if "planned_changes" in line] == [(160, 2.0)]


def test_a_setting_that_changes_as_announced_is_in_the_log_and_alerts_nobody(tmp_path: Path) -> None:
    def frozen(monitor: TrainingMonitor, model: nn.Module) -> None:
        monitor.planned("evaluation mode, another target")
        model.eval()

    assert trained(frozen, tmp_path / "run.jsonl").alerts == {}
    (line,) = events_of(tmp_path / "run.jsonl", "SETTING_CHANGED")
    assert line["step"] == CHANGED
    records = events_of(tmp_path / "run.jsonl", "METRICS")
    assert [record["step"] for record in records if record["settings_changed"]] == [CHANGED]


def test_a_change_that_is_announced_before_a_checkpoint_counts_after_it() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def fresh() -> TrainingMonitor:
        return TrainingMonitor(model, optimizer, hardware=False, announce=False)

    def step(monitor: TrainingMonitor) -> None:
        loss = model(torch.ones(2, 4)).square().mean()
        loss.backward()
        monitor.step(loss)

    with fresh() as first, fresh() as resumed:
        step(first)
        first.planned("another task")
        resumed.planned("other data, from here on")
        resumed.load_state_dict(first.state_dict())
        step(resumed)
        resumed.validation(1.0)  # the record of the step is looked at
        assert resumed.last is not None and resumed.last.planned_changes == 2.0


@pytest.mark.slow
@pytest.mark.parametrize("what", ["", " ", 3, None])
def test_words_that_say_nothing_are_passed_by_in_one_line(what: Any, caplog: pytest.LogCaptureFixture) -> None:
    def wrong(monitor: TrainingMonitor, model: nn.Module) -> None:
        monitor.planned(what)

    with caplog.at_level(logging.WARNING, "rmetric"):
        monitor = trained(wrong)
    (message,) = [record.message for record in caplog.records]
    assert "needs a description" in message and "\n" not in message
    assert monitor.alerts  # nothing was announced


@pytest.mark.slow
@pytest.mark.parametrize(("every", "told"), [(1, True), (17, True), (18, False), (60, False)])
def test_who_announces_every_few_steps_is_told_once_that_nothing_is_judged(
    every: int, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with (
        caplog.at_level(logging.WARNING, "rmetric"),
        TrainingMonitor(model, optimizer, hardware=False, announce=False) as monitor,
    ):
        for step in range(240):
            if step % every == 0:
                monitor.planned("the next phase")
                monitor.planned("and what comes with it")
            optimizer.zero_grad()
            loss = model(torch.ones(2, 4)).square().mean() + step
            loss.backward()
            monitor.step(loss)
            optimizer.step()
    assert [record.message for record in caplog.records] == [ANNOUNCED_TOO_OFTEN] * told


def test_who_was_told_of_it_before_a_checkpoint_is_not_told_again(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    state: dict[str, Any] = {}
    told = []
    for _ in range(3):
        with TrainingMonitor(model, optimizer, hardware=False, announce=False) as monitor:
            monitor.load_state_dict(state)
            for _ in range(3):
                monitor.planned("the next phase")
                monitor.step(1.0)
            state = monitor.state_dict()
        told.append(len([record for record in caplog.records if record.message == ANNOUNCED_TOO_OFTEN]))
    assert told == [0, 1, 1]  # what is announced on both sides of a checkpoint counts together


def test_a_note_cannot_pass_for_an_announcement(caplog: pytest.LogCaptureFixture) -> None:
    def disguised(monitor: TrainingMonitor, model: nn.Module) -> None:
        monitor.note("PLANNED_CHANGE", what="another target")

    with caplog.at_level(logging.WARNING, "rmetric"):
        assert trained(disguised).alerts
    assert "a note cannot be named 'PLANNED_CHANGE'" in caplog.text
