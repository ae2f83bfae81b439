"""Policies of any kind: when they intervene, how often, and what the document says of them."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch

from rmetric.monitor import repair
from rmetric.monitor.repair import LowerLearningRate, Policy, RecomputeStep
from rmetric.monitor.repair.policy import InterventionRule
from tests.helpers import ROOT
from tests.monitor.common import Scheduled
from tests.monitor.repair.common import Toy, poisoned


def test_an_alarm_that_stays_lowers_it_after_some_steps() -> None:
    toy = poisoned(Toy(), 30, 31, 32, 33)
    with toy.watch(policy=LowerLearningRate(when=InterventionRule(patience=2))) as monitor:
        toy.train(33, monitor)
        assert [repair.step for repair in monitor.repairs] == [31]


@pytest.mark.parametrize("others", [[], [RecomputeStep]])
def test_what_lasts_is_unusual_in_every_step_of_its_row(others: list[type[Policy]]) -> None:
    """A second computation that agrees raises the bar; the row is counted by the one it began with."""
    toy = poisoned(Toy(), *range(30, 50), factor=50.0)
    with toy.watch(policy=[*(make() for make in others), LowerLearningRate()]) as monitor:
        toy.train(31, monitor)
        state = monitor.state_dict()
    with toy.watch(policy=[*(make() for make in others), LowerLearningRate()]) as resumed:
        resumed.load_state_dict(state)
        toy.train(19, resumed)
        assert [repair.step for repair in resumed.repairs if repair.verdict == "lowered"] == [32]


def test_a_row_goes_on_from_a_state_that_does_not_know_where_its_bar_began() -> None:
    rule = InterventionRule()
    rule.load_state_dict({"row": 2, "next_step": 7, "done": 1})
    assert rule.state_dict() == {"row": 2, "factors": None, "next_step": 7, "done": 1}


def test_a_detectors_alert_makes_an_intervention() -> None:
    toy = poisoned(Toy(), 5, 6, factor=1e4)
    policy = LowerLearningRate(when=InterventionRule(on=("grad_norm",), most=1))
    with toy.watch(detectors=("grad_norm",), policy=policy) as monitor:
        toy.train(8, monitor)
        assert monitor.alerts == {"grad_norm": 5}
        assert [repair.step for repair in monitor.repairs] == [6]


def test_a_run_that_is_resumed_right_after_an_alert_has_its_intervention() -> None:
    def options() -> dict[str, Any]:
        return {
            "detectors": ("grad_norm",),
            "policy": LowerLearningRate(when=InterventionRule(on=("grad_norm",), most=1)),
        }

    toy = poisoned(Toy(), 5, factor=1e4)
    with toy.watch(**options()) as monitor:
        toy.train(5, monitor)
        state = monitor.state_dict()
    with toy.watch(**options()) as resumed:
        resumed.load_state_dict(state)
        assert resumed.last is not None and monitor.last is not None
        assert resumed.last.step == 5 and math.isnan(resumed.last.validation_loss)  # type: ignore[arg-type]
        toy.train(3, resumed)
        assert [repair.step for repair in resumed.repairs] == [6]


def test_interventions_need_a_rest_and_have_an_end() -> None:
    toy = Toy()
    policy = LowerLearningRate(steps=1, when=InterventionRule(on=("scheduled",), rest=5, most=3))
    with toy.watch(detectors=(Scheduled(range(100)),), policy=policy) as monitor:
        toy.train(30, monitor)
        assert [repair.step for repair in monitor.repairs] == [2, 7, 12]


def test_a_policy_of_ones_own_that_fails_ends_the_repairs_only(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Policy):
        def inspect(self, context: Any) -> bool:
            return False

        def after_update(self) -> None:
            raise RuntimeError("no")

    toy, alone = Toy(), Toy()
    with toy.watch(policy=Broken()) as monitor:
        assert all(toy.train(5, monitor))
        assert monitor.enabled
        with_policies_ended = len(toy.optimizer._optimizer_step_post_hooks)
    with alone.watch() as monitor:
        alone.train(5, monitor)
        assert with_policies_ended == len(alone.optimizer._optimizer_step_post_hooks)
    assert all(torch.equal(a, b) for a, b in zip(toy.bits(), alone.bits(), strict=True))
    assert "after an update, RuntimeError: no" in caplog.text


def test_the_policies_are_made_as_the_document_says() -> None:
    text = (ROOT / "docs" / "repair.md").read_text(encoding="utf-8")
    calls = re.findall(r"^\| `(\w+\(.*?\))` \|", text, re.M)
    assert len(calls) == 8
    for call in calls:
        name = call.partition("(")[0]
        policy = getattr(repair, name)
        assert repr(eval(call, {name: policy})) == repr(policy())  # the defaults stand in the table
