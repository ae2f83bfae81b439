"""A lower learning rate: for how long, and that it is given back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from rmetric.errors import UserError
from rmetric.monitor import repair
from rmetric.monitor.repair import LowerLearningRate, Policy
from rmetric.monitor.repair.context import StepContext
from rmetric.monitor.repair.policy import InterventionRule
from tests.monitor.common import Scheduled
from tests.monitor.repair.common import Toy, poisoned


def test_the_learning_rate_is_lower_for_some_updates_whatever_the_scheduler_does() -> None:
    toy = Toy(lr=0.1)
    seen: list[float] = []
    recorded: list[float] = []
    policy = LowerLearningRate(factor=0.5, steps=2, when=InterventionRule(on=("scheduled",)))
    with toy.watch(detectors=(Scheduled({1}),), policy=policy) as monitor:
        scheduler = torch.optim.lr_scheduler.ExponentialLR(toy.optimizer, 0.9)
        toy.optimizer.register_step_pre_hook(lambda optimizer, *_: seen.append(optimizer.param_groups[0]["lr"]))
        for step in range(1, 6):
            toy.train(1, monitor)
            assert monitor.last is not None
            recorded.append(monitor.last["learning_rate"])
            assert toy.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.9 ** (step - 1))
            scheduler.step()
        assert [(repair.step, repair.verdict) for repair in monitor.repairs] == [(2, "lowered")]
    factors = [rate / (0.1 * 0.9**index) for index, rate in enumerate(seen)]
    assert factors == pytest.approx([1.0, 0.5, 0.5, 1.0, 1.0])
    assert recorded == pytest.approx(seen), "else the updates that grow at the end look like a fault"


@pytest.mark.slow
def test_a_rate_that_is_too_large_is_lowered_without_being_told_when() -> None:
    toy = Toy(lr=0.02)
    with toy.watch(policy=LowerLearningRate()) as monitor:
        toy.train(59, monitor)
        toy.optimizer.param_groups[0]["lr"] *= 200.0
        toy.train(10, monitor)
        assert [(repair.step, repair.reasons) for repair in monitor.repairs] == [(61, ())]  # after an alert, no alarm
        assert monitor.alerts == {"r_metric_robust": 60}


class Looks(Policy):
    """Notes the learning rate of each record."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def inspect(self, context: StepContext) -> bool:
        self.seen += [] if context.observation is None else [context.observation["learning_rate"]]
        return False


def test_policies_see_the_scheduled_rate() -> None:
    """Else the one that comes back would look to GoBack like a schedule that restarts, whose losses do not count."""
    toy, looks = Toy(lr=0.1), Looks()
    lower = LowerLearningRate(factor=0.5, steps=2, when=InterventionRule(on=("scheduled",)))
    with toy.watch(detectors=(Scheduled({1}),), policy=[lower, looks]) as monitor:
        toy.train(6, monitor)
    assert looks.seen == pytest.approx([0.1] * 5)


def test_gradients_that_fall_do_not_lower_it() -> None:
    toy = poisoned(Toy(), *range(30, 36), factor=1e-4)
    with toy.watch(detectors=(), policy=LowerLearningRate()) as monitor:
        toy.train(35, monitor)
        assert monitor.repairs == []


def test_two_that_lower_the_learning_rate_give_it_back() -> None:
    toy, seen = Toy(lr=0.1), []
    policies = [
        LowerLearningRate(factor=0.5, steps=steps, when=InterventionRule(on=("scheduled",))) for steps in (1, 2)
    ]
    with toy.watch(detectors=(Scheduled({1}),), policy=policies) as monitor:
        toy.optimizer.register_step_pre_hook(lambda optimizer, *_: seen.append(optimizer.param_groups[0]["lr"]))
        for _ in range(5):
            toy.train(1, monitor)
            assert toy.optimizer.param_groups[0]["lr"] == 0.1
    assert seen == [0.1, 0.025, 0.05, 0.1, 0.1]


class RelativeSteps(torch.optim.SGD):
    """Works out the step of a group without a learning rate, as the Adafactor of transformers does."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.data.sub_((group["lr"] or 0.01) * parameter.grad)


def test_a_group_without_a_learning_rate_is_left_alone() -> None:
    toy = Toy(lr=0.1, kind=RelativeSteps)
    toy.optimizer.param_groups[0]["lr"] = None
    with pytest.raises(UserError, match="RelativeSteps has no learning rate that could be lowered"):
        toy.watch(policy=LowerLearningRate())
    toy.watch(policy=repair.GoBack()).close()  # which lowers none by default
    toy.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))], "lr": 0.1})
    policy = LowerLearningRate(factor=0.5, when=InterventionRule(on=("scheduled",)))
    with toy.watch(detectors=(Scheduled({1}),), policy=policy) as monitor:
        toy.train(3, monitor)
        assert [repair.verdict for repair in monitor.repairs] == ["lowered"]


@pytest.mark.parametrize("ends_with", ["a step", "close"])
def test_a_step_that_raises_keeps_no_learning_rate(ends_with: str) -> None:
    toy, policy = Toy(lr=0.1), LowerLearningRate(factor=0.5, when=InterventionRule(on=("scheduled",)))

    def out_of_memory() -> float:
        raise RuntimeError("out of memory")

    with toy.watch(detectors=(Scheduled({1}),), policy=policy) as monitor:
        toy.train(2, monitor)
        for _ in range(3):
            with pytest.raises(RuntimeError, match="out of memory"):
                toy.optimizer.step(out_of_memory)
            assert toy.optimizer.param_groups[0]["lr"] == 0.05
        if ends_with == "a step":
            toy.train(1, monitor)
            assert toy.optimizer.param_groups[0]["lr"] == 0.1
    assert toy.optimizer.param_groups[0]["lr"] == 0.1
