"""Rewards that an agent's training loop reports: in the record of the next step."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from rmetric import read_run
from rmetric.monitor import TrainingMonitor


def small(log: Path | None = None, **options: int) -> tuple[TrainingMonitor, nn.Module]:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return TrainingMonitor(model, optimizer, log=log, hardware=False, announce=False, **options), model


def step(monitor: TrainingMonitor, model: nn.Module) -> None:
    loss = model(torch.ones(2, 4)).square().mean()
    loss.backward()
    monitor.step(loss)


@pytest.mark.parametrize(("record_every", "logged"), [(1, [math.nan, 3.0, 5.0]), (3, [4.0])])
def test_a_record_has_the_mean_of_the_rewards_since_the_one_before(
    record_every: int, logged: list[float], tmp_path: Path
) -> None:
    monitor, model = small(tmp_path / "run.jsonl", record_every=record_every)
    with monitor:
        for rewards in ([], [2.0, torch.tensor(4.0)], [5.0] if record_every == 1 else [6.0]):
            for reward in rewards:
                monitor.reward(reward)
            step(monitor, model)
    assert read_run(tmp_path / "run.jsonl").observations["reward"] == pytest.approx(logged, nan_ok=True)


def test_a_reward_that_is_no_number_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    monitor, model = small()
    with monitor:
        monitor.reward("much")  # type: ignore[arg-type]
        step(monitor, model)
    assert "monitor.reward(reward) take one real number" in caplog.text
    assert math.isnan(monitor.last["reward"])


def test_a_resumed_run_has_the_rewards_that_no_record_had() -> None:
    (first, model), (resumed, again) = small(), small()
    with first, resumed:
        step(first, model)
        first.reward(2.0)
        resumed.reward(4.0)
        resumed.load_state_dict(first.state_dict())
        step(resumed, again)
        resumed.validation(1.0)  # the record of the step is looked at
        assert resumed.last["reward"] == 3.0
