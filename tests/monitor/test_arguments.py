"""What is wrong with the monitor's arguments is said in one line at construction."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from rmetric.errors import UserError
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.repair import RecomputeStep
from tests.monitor.common import small_training


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"detectors": "numerics"}, r"detectors must be a list, such as detectors=\['numerics'"),
        ({"detectors": [3]}, "detectors cannot hold 3"),
        ({"sinks": ["x"]}, r"sinks cannot hold 'x'; .*log='run.jsonl'"),
        ({"sinks": "x"}, "sinks must be a list"),
        ({"on_alert": "print"}, "on_alert must be a function that takes an Alert, such as on_alert=print"),
        ({"config": "run 7"}, "config must be a dictionary"),
        ({"scaler": 3}, "scaler must be the torch.amp.GradScaler of the loop"),
        ({"clock": 3.0}, "clock must be a function"),
        ({"record_every": True}, "record_every must be a whole number of steps, at least 1"),
        ({"sigma_sq_every": 0}, "sigma_sq_every must be a whole number of steps, at least 1"),
        ({"policy": "RecomputeStep"}, "policy= takes policies"),
        ({"vocabulary": -3}, "vocabulary must be a whole number of tokens, at least 2, such as vocabulary=50257"),
        ({"vocabulary": "x"}, "vocabulary must be a whole number of tokens"),
        ({"update_entries": -1}, "update_entries must be a whole number of entries, at least 1"),
        ({"update_entries": 0}, "update_entries must be a whole number of entries, at least 1"),
        ({"log": 5}, "log must be the path of a file, such as log='run.jsonl'; not 5"),
        ({"hang": "x"}, "hang must be True, False, or a HangWatch; not 'x'"),
        ({"hardware": "x"}, "hardware must be True, False, or a HardwareWatch; not 'x'"),
        ({"announce": "x"}, "announce must be True or False; not 'x'"),
        ({"sync": "x"}, "sync must be True or False; not 'x'"),
    ],
)
def test_an_option_of_the_wrong_kind(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        TrainingMonitor(*small_training(), **{"hardware": False, **options})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("retries", [-1, 0, "two"])
def test_a_policy_with_a_wrong_number(retries: Any) -> None:
    with pytest.raises(UserError, match="max_retries must be a whole number, at least 1"):
        RecomputeStep(max_retries=retries)


def test_swapped_model_and_optimizer() -> None:
    model, optimizer = small_training()
    with pytest.raises(UserError, match=r"swapped; call TrainingMonitor\(model, optimizer\)"):
        TrainingMonitor(optimizer, model, hardware=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [None, 1, "model"])
def test_no_model_and_no_optimizer(wrong: Any) -> None:
    model, optimizer = small_training()
    with pytest.raises(UserError, match="model must be the torch module"):
        TrainingMonitor(wrong, optimizer, hardware=False)
    with pytest.raises(UserError, match="optimizer must be the torch optimizer"):
        TrainingMonitor(model, wrong, hardware=False)


def test_nothing_to_train() -> None:
    model, optimizer = small_training()
    model.requires_grad_(False)
    with pytest.raises(UserError, match="has no parameter with requires_grad=True"):
        TrainingMonitor(model, optimizer, hardware=False)


def test_the_optimizer_of_another_model_is_told_and_training_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    model, _ = small_training()
    _, other = small_training()
    with caplog.at_level(logging.WARNING, "rmetric"), TrainingMonitor(model, other, hardware=False) as monitor:
        assert monitor.step(torch.tensor(1.0))
    record = caplog.records[0]
    assert "updates no parameter of this Sequential" in record.message


def test_an_optimizer_of_some_of_the_parameters_is_no_reason_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    model, _ = small_training()
    part = torch.optim.SGD(model[2].parameters(), lr=0.1)
    with caplog.at_level(logging.WARNING, "rmetric"), TrainingMonitor(model, part, hardware=False):
        assert not caplog.records
