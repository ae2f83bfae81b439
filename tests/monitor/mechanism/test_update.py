"""The optimizer's last update."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rmetric.errors import UserError
from rmetric.monitor.mechanism import MonitorResult, UpdateExtremes
from tests.monitor.mechanism.common import measured

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "adam with decay": lambda parameters: torch.optim.Adam(parameters, lr=0.01, weight_decay=0.1, betas=(0.8, 0.9)),
    "adam that maximises": lambda parameters: torch.optim.Adam(parameters, lr=0.01, maximize=True, foreach=False),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=0.1),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    "nesterov": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9, nesterov=True),
    "amsgrad": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, amsgrad=True),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01),
}


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2, bias=False))


def backward(model: nn.Module, step: int) -> None:
    model.zero_grad()
    inputs = torch.randn(7, 6, generator=torch.Generator().manual_seed(step))
    model(inputs).square().mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def updates(optimizer_of: Callable[[Any], torch.optim.Optimizer]) -> list[tuple[MonitorResult, Any]]:
    """Of five steps with a schedule in between: what the monitor says, and the true changes."""
    model = network()
    optimizer = optimizer_of(model.parameters())
    monitor = UpdateExtremes(model)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    found = []
    for step in range(5):
        backward(model, step)
        before = {name: parameter.detach().double().clone() for name, parameter in model.named_parameters()}
        monitor.arm()
        optimizer.step()
        schedule.step()
        backward(model, step + 1)  # as the next step would before it is measured
        changes = {name: item.detach().double() - before[name] for name, item in model.named_parameters()}
        found.append((measured(monitor), changes))
    return found


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_tensors_size_and_maximum_are_those_of_the_true_change(name: str) -> None:
    for seen, changes in updates(OPTIMIZERS[name]):
        assert seen.details["tensors"] == [*changes]
        rms = [change.square().mean().sqrt().item() for change in changes.values()]
        largest = [change.abs().max().item() for change in changes.values()]
        assert seen.details["rms"] == pytest.approx(np.array(rms), rel=1e-3)  # the difference of close numbers
        assert seen.details["max"] == pytest.approx(np.array(largest), rel=1e-3)
        assert seen.values["update_max"] == pytest.approx(max(largest), rel=1e-3)
        near = [name for name, value in zip(changes, largest, strict=True) if value > 0.999 * max(largest)]
        assert seen.worst["update_max"] in near


def test_a_step_that_was_skipped_has_the_update_zero() -> None:
    model = network()
    optimizer = OPTIMIZERS["adamw"](model.parameters())
    monitor = UpdateExtremes(model)
    backward(model, 0)
    optimizer.step()
    monitor.arm()
    backward(model, 1)
    assert measured(monitor).values["update_max"] == 0.0


def test_a_parameter_without_a_gradient_did_not_move() -> None:
    model = network()
    optimizer = OPTIMIZERS["momentum"](model.parameters())
    monitor = UpdateExtremes(model)
    backward(model, 0)
    optimizer.step()
    backward(model, 1)
    model[2].weight.grad = None
    monitor.arm()
    optimizer.step()
    assert [value > 0 for value in measured(monitor).details["max"]] == [True, True, False]


def test_it_is_measured_only_where_it_was_armed() -> None:
    model = network()
    monitor = UpdateExtremes(model)
    assert measured(monitor) is None
    monitor.arm()
    assert measured(monitor) is not None
    assert measured(monitor) is None


def test_a_parameter_that_was_corrupted_between_two_steps_shows_and_is_named() -> None:
    model = network()
    optimizer = OPTIMIZERS["adamw"](model.parameters())
    monitor = UpdateExtremes(model)
    backward(model, 0)
    monitor.arm()
    optimizer.step()
    with torch.no_grad():
        model[2].weight[1, 3] = math.inf
    seen = measured(monitor)
    assert seen.values["update_max"] == math.inf
    assert seen.worst["update_max"] == "2.weight"


def test_a_checkpoint_between_the_update_and_its_measurement() -> None:
    model = network()
    optimizer = OPTIMIZERS["adamw"](model.parameters())
    monitor = UpdateExtremes(model)
    for step in range(2):
        backward(model, step)
        monitor.arm()
        optimizer.step()
    other = UpdateExtremes(model)
    other.load_state_dict(monitor.state_dict())
    seen, again = measured(monitor), measured(other)
    assert again.values == seen.values
    assert again.details["rms"].tolist() == seen.details["rms"].tolist()


def test_a_model_without_trained_parameters_is_refused_in_words() -> None:
    with pytest.raises(UserError, match="needs a model with parameters that are trained"):
        UpdateExtremes(nn.Tanh())
