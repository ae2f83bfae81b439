"""Going back: a run that diverges ends near its twin; what is kept, capped and logged."""

from __future__ import annotations

import logging
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from rmetric.errors import UserError
from rmetric.measurements import Observation
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.repair import FatalRule, GoBack, HostCopies, TrainingStopped
from rmetric.state import state_of
from tests.helpers import lines_of
from tests.monitor.repair.common import Toy, equal

STEPS, ONSET = 400, 150


class Spiked(Toy):
    """A network whose learning rate is far too large from a step on."""

    def __init__(self, first: int = ONSET, steps: int = 20, factor: float = 200.0) -> None:
        super().__init__(lr=0.02)
        self.wrong, self.factor, self.planned = range(first, first + steps), factor, 0.02

    def compute(self) -> torch.Tensor:
        self.optimizer.param_groups[0]["lr"] = self.planned * (self.factor if self.step in self.wrong else 1.0)
        return super().compute()

    def held_out(self) -> float:
        self.model.eval()
        data = torch.randn(256, 6, generator=torch.Generator().manual_seed(7))
        with torch.no_grad():
            return float((self.model(data) - data[:, :3]).square().mean())


def trained(toy: Toy, steps: int = STEPS, **options: Any) -> TrainingMonitor:
    with toy.watch(**options) as monitor:
        toy.train(steps, monitor)
    return monitor


@pytest.fixture(scope="module")
def twin() -> Spiked:
    """Trained without a monitor and without a fault; the tests look, and change nothing."""
    toy = Spiked(steps=0)
    toy.train(STEPS)
    return toy


@pytest.mark.slow
def test_a_run_that_diverges_ends_near_its_twin(twin: Spiked) -> None:
    alone, repaired = Spiked(), Spiked()
    alone.train(STEPS)
    monitor = trained(repaired, policy=GoBack())
    assert not alone.held_out() < 10.0 * twin.held_out()
    assert repaired.held_out() < 1.05 * twin.held_out()
    assert {repair.verdict for repair in monitor.repairs} == {"went_back"}
    for repair in monitor.repairs:
        assert repair.details["to_step"] + 25 <= ONSET < repair.step


@pytest.mark.slow
def test_a_healthy_run_is_left_as_it_is(twin: Spiked) -> None:
    watched = Spiked(steps=0)
    assert trained(watched, policy=GoBack()).repairs == []
    assert equal(watched.bits(), twin.bits())


@pytest.mark.slow
def test_what_does_not_pass_stops_the_training_with_a_verdict_and_an_exit_status(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "run.jsonl"
    with caplog.at_level(logging.WARNING), pytest.raises(TrainingStopped) as stopped:
        trained(Spiked(steps=STEPS, factor=1000.0), policy=GoBack(max_tries=2), log=log, announce=True)
    assert stopped.value.code == 3
    events = lines_of(log.read_bytes())
    repairs = [event for event in events if event.get("policy") == "GoBack"]
    assert [event["verdict"] for event in repairs] == ["went_back", "went_back", "gave_up"]
    assert events[-1] == {"event": "EXPERIMENT_FAILURE", "step": stopped.value.step, "reason": "STOPPED"}
    assert [event["step"] for event in events if event["event"] == "METRICS"][-1] == stopped.value.step
    assert all(event["message"] in caplog.text for event in repairs)


@pytest.mark.slow
def test_functions_of_ones_own_take_the_training_loop_back_too(twin: Spiked) -> None:
    toy = Spiked()
    went_to: list[int] = []

    def save() -> dict[str, Any]:
        return {"step": toy.step, "weights": [item.clone() for item in toy.model.state_dict().values()]}

    def load(snapshot: dict[str, Any]) -> None:
        toy.step = snapshot["step"] - 1  # the step in which it was saved is done again
        toy.wrong = range(0)  # a fault of the moment
        with torch.no_grad():
            for item, kept in zip(toy.model.state_dict().values(), snapshot["weights"], strict=True):
                item.copy_(kept)

    policy = GoBack(save=save, load=load, on_rollback=lambda record: went_to.append(record.details["to_step"]))
    with toy.watch(policy=policy) as monitor:
        while toy.step < STEPS:
            toy.train(1, monitor)
    assert went_to == [100]
    pairs = zip(toy.model.parameters(), twin.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.slow
def test_the_checkpoint_that_was_good_is_kept_while_newer_ones_are_not_known_to_be() -> None:
    made: list[int] = []
    toy = Spiked(first=152, steps=20)

    def save() -> int:
        made.append(toy.step)
        return toy.step

    loaded: list[int] = []
    policy = GoBack(every=10, keep=1, save=save, load=loaded.append)
    trained(toy, 200, policy=policy)
    assert made[:4] == [1, 10, 20, 30]
    assert loaded[0] == 120  # those of 130, 140 and 150 are less than 25 records older than the first sign


@pytest.mark.slow
def test_the_learning_rate_is_lower_for_a_while_after_it() -> None:
    toy, rates = Spiked(factor=1000.0), []
    policy = GoBack(learning_rate_factor=0.5, learning_rate_steps=10)
    with toy.watch(policy=policy) as monitor:  # its hook comes first
        toy.optimizer.register_step_pre_hook(lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"]))
        toy.train(STEPS, monitor)
    last = monitor.repairs[-1].step - len(monitor.repairs)  # no update in the steps in which it went back
    assert rates[last : last + 12] == pytest.approx([0.5 * toy.planned] * 10 + [toy.planned] * 2)


@dataclass(kw_only=True)
class Scripted(FatalRule):
    """Says at some steps of the training loop that the run fails for good, and never has a sign."""

    fails_at: tuple[int, ...] = ()

    def update(self, observation: Observation, *, ahead: int = 0) -> str:
        step = observation.step + ahead
        return f"step {step} fails" if step in self.fails_at else ""


@pytest.mark.slow
def test_the_reason_names_the_step_of_the_loop_after_it_went_back_too() -> None:
    toy, again = Spiked(steps=12), 300
    with toy.watch(policy=GoBack()) as monitor:
        toy.train(again - 1, monitor)
        toy.wrong = range(again, again + 12)
        toy.train(60, monitor)
    later = [repair for repair in monitor.repairs if repair.step >= again]
    assert later and len(later) < len(monitor.repairs)
    first = re.search(r"since step (\d+)", later[0].details["because"])
    assert first is not None and again <= int(first[1]) <= later[0].step


@pytest.mark.slow
def test_no_checkpoint_is_said_seldom_and_none_of_a_failing_training_is_taken() -> None:
    toy, loaded, dropped = Spiked(first=100, factor=1000.0), [], []
    policy = GoBack(every=0, load=loaded.append, discard=dropped.append, rest=40)
    with toy.watch(policy=policy) as monitor:
        toy.train(150, monitor)
        policy.offer("while it fails")
        toy.train(50, monitor)
    told = [repair.step for repair in monitor.repairs if repair.verdict == "no_checkpoint"]
    assert 100 <= told[0] <= 120 and len(told) == 3
    assert (loaded, dropped) == ([], ["while it fails"])


@pytest.mark.slow
def test_what_was_said_while_it_rested_is_forgotten_with_the_failure() -> None:
    toy = Spiked(steps=0)
    policy = GoBack(every=10, hindsight=5, rest=100, rule=Scripted(fails_at=(45, 52)))
    monitor = trained(toy, 160, policy=policy)
    assert [repair.details["because"] for repair in monitor.repairs] == ["step 45 fails"]


@pytest.mark.slow
def test_what_the_monitor_did_itself_raises_no_alert_and_is_no_change_for_the_rule(tmp_path: Path) -> None:
    """The records after it begin a course of their own; the rule goes on from where it went back to."""
    toy, policy, log = Toy(), GoBack(every=20), tmp_path / "run.jsonl"
    with toy.watch(policy=policy, log=log) as monitor:
        toy.train(150, monitor)
        torch.nn.init.constant_(toy.model[0].weight, math.nan)
        toy.train(60, monitor)
    went_back = [repair.step for repair in monitor.repairs if repair.verdict == "went_back"]
    events = lines_of(log.read_bytes())
    assert len(went_back) == 1
    assert {(event["step"], event["cause"]) for event in events if event["event"] == "ALERT"} == {(151, "not_finite")}
    assert [event["step"] for event in events if event["event"] == "PLANNED_CHANGE"] == [went_back[0] + 1]
    assert [event["step"] for event in events if "planned_changes" in event] == [went_back[0] + 1]
    assert policy.state_dict()["counters"]["_announced_at"] < 0


@pytest.mark.slow
def test_an_evaluation_of_weights_that_are_undone_says_nothing_of_those_it_went_back_to() -> None:
    toy = Toy()
    with toy.watch(policy=GoBack(every=20)) as monitor:
        for _ in range(15):
            toy.train(10, monitor)
            monitor.validation(math.nan if toy.step in (80, 90) else 1.0 / toy.step)
            if toy.step == 90:
                toy.train(110, monitor)
    (repair,) = monitor.repairs  # after the record of step 91, the first that knows of both
    assert repair.step == 92 and "validation loss is not finite in 2 evaluations" in repair.details["because"]


class Counting(torch.optim.SGD):
    """Keeps what it knows in its parameter groups, as Prodigy and schedule-free optimizers do."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["k"] = group.get("k", 0) + 1
            group["d"] = group.get("d", torch.zeros(())) + 0.5
        return super().step(closure)


def test_numbers_in_the_parameter_groups_go_back_and_those_of_a_schedule_do_not() -> None:
    toy = Toy(kind=Counting)
    group = toy.optimizer.param_groups[0]
    toy.train(3)
    copies = HostCopies(toy.model, toy.optimizer)
    snapshot = copies.save()
    toy.train(4)
    group.update(lr=0.01, weight_decay=0.1, nesterov=False)
    copies.load(snapshot)
    assert (group["k"], float(group["d"])) == (3, 1.5)
    assert (group["lr"], group["weight_decay"], group["momentum"]) == (0.01, 0.1, 0.0)


class Retasked(Toy):
    """A network that gets another task, announced, and that is damaged once thereafter."""

    def __init__(self, announced_at: int, damaged_at: int, factor: float) -> None:
        super().__init__(lr=0.02)
        self.announced_at, self.damaged_at, self.factor = announced_at, damaged_at, factor

    def run(self, steps: int) -> TrainingMonitor:
        draws = torch.Generator().manual_seed(0)
        with self.watch(policy=GoBack()) as monitor:
            for step in range(1, steps + 1):
                if step == self.announced_at:
                    monitor.planned("another target")
                scale = -8.0 if step >= self.announced_at else 1.0
                data = torch.randn(32, 6, generator=draws)
                target = scale * (data[:, :3] + 0.5 * torch.randn(32, 3, generator=draws))
                self.optimizer.zero_grad()
                loss = (self.model(data) - target).square().mean()
                if step == self.damaged_at:
                    loss = loss * self.factor
                loss.backward()
                if monitor.step(loss) and step != self.damaged_at:
                    self.optimizer.step()
                elif step == self.damaged_at and math.isfinite(self.factor):
                    with torch.no_grad():
                        self.model[-1].weight.mul_(self.factor)
        return monitor


@pytest.mark.slow
def test_losses_before_an_announced_change_are_no_reference_for_those_after_it() -> None:
    monitor = Retasked(200, 203, math.nan).run(400)
    assert monitor.alerts["numerics"] == 203
    assert not [repair for repair in monitor.repairs if repair.verdict == "went_back"]


@pytest.mark.slow
def test_who_goes_back_behind_an_announced_change_still_knows_of_it() -> None:
    monitor = Retasked(200, 225, 300.0).run(500)
    (repair,) = [repair for repair in monitor.repairs if repair.verdict == "went_back"]
    assert 225 < repair.step < 250 and repair.details["to_step"] <= 200


@pytest.mark.slow
def test_giving_up_says_how_often_it_went_back_in_the_run() -> None:
    policy = GoBack(every=10, hindsight=5, rest=1, max_rollbacks=2, rule=Scripted(fails_at=(45, 90, 130)))
    with pytest.raises(TrainingStopped, match="after 2 attempts"):
        trained(Spiked(steps=0), 160, policy=policy)


def test_mistakes_are_told_in_one_line() -> None:
    with pytest.raises(UserError, match="save= and load="):
        GoBack(save=lambda: None)
    with pytest.raises(UserError, match="learning_rate_factor"):
        GoBack(learning_rate_factor=2.0)
    with pytest.raises(UserError, match="at least 1"):
        GoBack(keep=0)


def test_a_detector_of_another_version_begins_anew_in_a_rule_that_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    rule = FatalRule()
    for step in range(1, 60):
        rule.update(Observation(step, training_loss=2.0 - step / 100))
    state = state_of(rule)
    changed = {**state, "_detectors": [{"another": 1}, *state["_detectors"][1:]]}
    again = state_of(FatalRule().resumed(changed))
    assert {**again, "_detectors": []} == {**state, "_detectors": []}
    assert again["_detectors"] == [state_of(FatalRule())["_detectors"][0], *state["_detectors"][1:]]
    assert "begins anew" in caplog.text
