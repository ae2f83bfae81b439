"""What is wrong with the monitor's arguments is said in one line at construction."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from rmetric.diagnosis import diagnose
from rmetric.errors import UserError
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.repair import ClipGradients, GoBack, LowerLearningRate, RecomputeStep, RestoreState
from rmetric.replay import replay_log
from tests.monitor.common import small_loss, small_training


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
        ({"sigma_sq_every": 0}, "sigma_sq_every must be a whole number of steps, at least 1"),
        ({"policy": "RecomputeStep"}, "policy= takes policies"),
        ({"vocabulary": -3}, "vocabulary must be a whole number of tokens, at least 2, such as vocabulary=50257"),
        ({"vocabulary": "x"}, "vocabulary must be a whole number of tokens"),
        ({"parameters": torch.nn.Linear(1, 1).parameters()}, "none of parameters= is a parameter of .*Sequential with"),
        ({"parameters": 3}, "parameters must be those of the model, such as parameters=model.gen.*; not 3"),
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


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        (RecomputeStep, {"tolerance": -1.0}, "tolerance is -1.0; it must be a share of the gradient, 0 or more"),
        (RestoreState, {"check_every": 0}, "check_every must be a whole number of steps, at least 1"),
        (ClipGradients, {"norm": 0.0}, "norm is 0.0; it must be above 0"),
        (ClipGradients, {"norm": math.nan}, "norm is nan; it must be above 0"),
        (LowerLearningRate, {"steps": -1}, "steps must be a whole number of updates, at least 1"),
        (GoBack, {"every": 2.5}, "every must be a whole number of steps, at least 0"),
    ],
)
def test_a_policy_with_a_setting_that_cannot_be_right(policy: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        policy(**options)


def test_a_recomputation_that_is_no_function() -> None:
    monitor = TrainingMonitor(*small_training(), hardware=False, announce=False, policy=RecomputeStep())
    with monitor, pytest.raises(UserError, match="recompute must be a function that computes the step again, not 3"):
        monitor.step(1.0, recompute=3)  # type: ignore[arg-type]


def test_of_several_optimizers_one_is_asked_for() -> None:
    model, optimizer = small_training()
    with pytest.raises(UserError, match="not a list; of several, give the one that updates most of it"):
        TrainingMonitor(model, [optimizer], hardware=False)  # type: ignore[arg-type]


class SharpnessAware(torch.optim.Optimizer):
    """Ascends, and lets another optimizer step from there, as it is commonly written."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {})
        self.base_optimizer = torch.optim.SGD(self.param_groups, lr=lr)
        self.param_groups = self.base_optimizer.param_groups
        self.offsets: list[torch.Tensor] = []

    @torch.no_grad()
    def ascend(self) -> None:
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        norm = torch.stack([parameter.grad.norm() for parameter in parameters]).norm()
        self.offsets = [0.05 * parameter.grad / norm for parameter in parameters]
        torch._foreach_add_(parameters, self.offsets)

    @torch.no_grad()
    def descend(self) -> None:
        torch._foreach_sub_([parameter for group in self.param_groups for parameter in group["params"]], self.offsets)
        self.base_optimizer.step()


def test_an_optimizer_that_lets_another_one_step(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4)
    optimizer, log = SharpnessAware(model.parameters(), lr=0.05), tmp_path / "run.jsonl"
    inputs = torch.randn(640, 8)
    with TrainingMonitor(model, optimizer, log=log, hardware=False) as monitor:
        for step in range(100):
            batch = inputs[6 * step : 6 * step + 32]
            for move in (optimizer.ascend, optimizer.descend):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(batch), batch[:, :4].argmax(1))
                loss.backward()
                if move == optimizer.ascend:
                    monitor.step(loss)
                move()
    own = replay_log(log).own
    assert own is not None and own.in_order


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


def test_the_optimizer_of_another_model_is_told_and_training_goes_on(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    model, _ = small_training()
    _, other = small_training()
    log = tmp_path / "run.jsonl"
    with caplog.at_level(logging.WARNING, "rmetric"), TrainingMonitor(model, other, log=log, hardware=False) as monitor:
        assert "updates no parameter of the model" in caplog.records[0].message
        assert monitor.step(torch.tensor(1.0))
    assert any("updates no parameter of the model" in note for note in diagnose(log).notes)


def test_an_optimizer_of_some_of_the_parameters_is_no_reason_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    model, _ = small_training()
    part = torch.optim.SGD(model[2].parameters(), lr=0.1)
    with caplog.at_level(logging.WARNING, "rmetric"), TrainingMonitor(model, part, hardware=False):
        assert not caplog.records


def test_models_that_cannot_be_watched_are_refused_in_one_line() -> None:
    lazy = torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.Linear(4, 1))
    with pytest.raises(UserError, match="get their shapes in its first forward pass"):
        TrainingMonitor(lazy, torch.optim.SGD(lazy[1].parameters(), lr=0.1), hardware=False)


def test_a_config_that_cannot_say_its_vocabulary_says_none() -> None:
    class Config:
        @property
        def vocab_size(self) -> int:
            raise KeyError("text_config")

    model, optimizer = small_training()
    model.config = Config()  # type: ignore[assignment]
    with TrainingMonitor(model, optimizer, hardware=False) as monitor:
        assert monitor.enabled


@pytest.mark.parametrize("rate", [None, "auto", dict, [0.1, 0.2], torch.ones(2)])
def test_an_optimizer_whose_learning_rate_is_no_number_is_watched(rate: Any) -> None:
    model, optimizer = small_training()
    optimizer.register_step_pre_hook(lambda *_: optimizer.param_groups[0].update(lr=0.01))
    optimizer.register_step_post_hook(lambda *_: optimizer.param_groups[0].update(lr=rate))
    optimizer.param_groups[0]["lr"] = rate
    with TrainingMonitor(model, optimizer, hardware=False, sync=True) as monitor:
        for step in range(3):
            optimizer.zero_grad()
            loss = small_loss(model, step)
            loss.backward()
            assert monitor.step(loss)
        assert monitor.last is not None and math.isnan(monitor.last["learning_rate"])
        assert monitor.enabled
