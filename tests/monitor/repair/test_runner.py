"""No update is made from gradients that are not finite where the monitor can prevent it."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rmetric.monitor import TrainingMonitor
from rmetric.monitor.repair import Decision, LowerLearningRate, Policy, RecomputeStep, SkipUpdate
from rmetric.monitor.repair.context import StepContext
from tests.helpers import lines_of
from tests.monitor.common import small_loss, small_training
from tests.monitor.repair.common import Toy, hooks_of

POLICIES: dict[str, Any] = {
    "recompute": lambda: {"policy": RecomputeStep(rehearsal=False)},
    "rehearsed": lambda: {"policy": RecomputeStep()},
    "several": lambda: {"policy": [RecomputeStep(), LowerLearningRate()]},
    "skip": lambda: {"policy": SkipUpdate(max_in_a_row=2)},
    "sync": lambda: {"sync": True},
    "sync without numerics": lambda: {"sync": True, "detectors": ["loss_spike"]},
}


@pytest.mark.parametrize("kind", POLICIES)
@pytest.mark.parametrize("entry", ["same", "another"])
def test_no_broken_update_passes_however_often_the_step_is_computed(kind: str, entry: str) -> None:
    """``same``: a persistent fault; ``another``: each computation is broken in another place."""
    model, optimizer = small_training()
    computations = 0

    def compute(step: int) -> torch.Tensor:
        nonlocal computations
        optimizer.zero_grad()
        loss = small_loss(model, step)
        loss.backward()
        if step >= 6:
            computations += 1
            place = computations if entry == "another" else 0
            model[0].weight.grad.view(-1)[place] = math.nan
        return loss.detach()

    proceeded = []
    with TrainingMonitor(model, optimizer, hardware=False, **POLICIES[kind]()) as monitor:
        for step in range(1, 12):
            loss = compute(step)
            proceeded.append(monitor.step(loss, recompute=lambda step=step: compute(step)))
            if proceeded[-1]:
                optimizer.step()
        assert monitor.enabled
    assert proceeded == [True] * 5 + [False] * 6
    assert all(parameter.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("kind", ["recompute", "several", "skip"])
def test_a_batch_of_nan_leaves_none_in_running_statistics(kind: str) -> None:
    toy = Toy()
    toy.model[0].register_forward_hook(lambda *args: args[2] * math.nan if toy.step == 6 else None)
    with toy.watch(**POLICIES[kind]()) as monitor:
        assert toy.train(8, monitor) == [step != 6 for step in range(1, 9)]
    assert all(buffer.isfinite().all() for buffer in toy.model.buffers())


def test_all_running_statistics_of_a_layer_are_put_back_where_one_is_spoiled() -> None:
    toy, before = Toy(), []

    def flip(module: nn.Module, _: Any, output: torch.Tensor) -> None:
        if toy.step == 6:
            before.extend(buffer.clone() for buffer in toy.model[1].buffers() if len(before) < 3)
            output.data[0, 0] = 1e25  # whose square is infinite

    toy.model[0].register_forward_hook(flip)
    with toy.watch(policy=SkipUpdate()) as monitor:
        assert toy.train(6, monitor) == [step != 6 for step in range(1, 7)]
    assert all(torch.equal(buffer, old) for buffer, old in zip(toy.model[1].buffers(), before, strict=True))


def test_a_batch_that_a_scaler_leaves_out_spoils_no_running_statistics() -> None:
    toy, scaler = Toy(), torch.amp.GradScaler("cpu")
    toy.model[0].register_forward_hook(lambda *args: args[2] * math.nan if toy.step == 3 else None)
    with toy.watch(scaler=scaler, policy=LowerLearningRate()) as monitor:
        assert all(toy.train(4, monitor))
    assert all(buffer.isfinite().all() for buffer in toy.model.buffers())


class Masked(nn.Module):
    """Has a mask that is made anew in each forward pass, and the least that it has seen, which is nothing at first."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.zeros(4))
        self.register_buffer("least", torch.tensor(math.inf))

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        self.mask.zero_()
        self.mask[2:] = -math.inf
        return (data[:, :4] + self.mask).softmax(-1)


def test_buffers_that_are_not_finite_by_design_are_no_sign() -> None:
    model = nn.Sequential(nn.Linear(6, 4), Masked(), nn.Linear(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with TrainingMonitor(model, optimizer, hardware=False, announce=False, policy=SkipUpdate()) as monitor:
        for _ in range(4):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 6)).square().mean()
            loss.backward()
            assert monitor.step(loss)
            optimizer.step()
    assert monitor.repairs == []


class BeginsAnew(nn.Module):
    """Keeps the least that it has seen, and begins anew in every third pass."""

    def __init__(self) -> None:
        super().__init__()
        self.passes = 0
        self.register_buffer("least", torch.zeros(()))

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        self.least.copy_(torch.minimum(self.least, data.min()) if self.passes % 3 else torch.tensor(math.inf))
        return data


def test_a_buffer_that_is_infinite_now_and_then_is_a_sign_once() -> None:
    model = nn.Sequential(nn.Linear(6, 4), BeginsAnew(), nn.Linear(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    made = []
    with TrainingMonitor(model, optimizer, hardware=False, announce=False, policy=SkipUpdate()) as monitor:
        for _ in range(9):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 6)).square().mean()
            loss.backward()
            made.append(monitor.step(loss))
            if made[-1]:
                optimizer.step()
    assert made == [step != 3 for step in range(1, 10)]


def test_a_refusal_is_told_once_a_row_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer = small_training()
    log = tmp_path / "run.jsonl"
    policy = RecomputeStep(rehearsal=False)
    with (
        caplog.at_level(logging.WARNING, "rmetric"),
        TrainingMonitor(model, optimizer, log=log, hardware=False, policy=policy) as monitor,
    ):
        for step in range(1, 9):

            def compute(step: int = step) -> torch.Tensor:
                optimizer.zero_grad()
                loss = small_loss(model, step)
                loss.backward()
                if step in (3, 4, 7):
                    model[0].weight.grad[0, 0] = math.inf
                return loss.detach()

            if monitor.step(compute(), recompute=compute):
                optimizer.step()
    events = lines_of(log.read_bytes())
    refused = [event["step"] for event in events if event["event"] == "REPAIR" and event["verdict"] == "refused"]
    assert refused == [3, 7]
    assert sum("no update is made" in record.message for record in caplog.records) == 2


def test_a_refusal_is_not_told_again_by_a_run_that_is_resumed_in_its_row() -> None:
    model, optimizer = small_training()

    def refused(steps: range, state: dict[str, Any]) -> tuple[list[int], dict[str, Any]]:
        policy = RecomputeStep(rehearsal=False)
        with TrainingMonitor(model, optimizer, hardware=False, announce=False, policy=policy) as monitor:
            monitor.load_state_dict(state)
            for step in steps:
                optimizer.zero_grad()
                (math.nan * small_loss(model, step)).backward()
                assert not monitor.step(math.nan)
            return [repair.step for repair in monitor.repairs if repair.verdict == "refused"], monitor.state_dict()

    steps, state = refused(range(3), {})
    assert steps == [1]
    assert refused(range(3, 6), state)[0] == []


def test_an_update_that_a_scaler_will_leave_out_itself_is_the_scalers() -> None:
    model, optimizer = small_training()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
    with TrainingMonitor(model, optimizer, hardware=False, scaler=scaler, policy=SkipUpdate(max_in_a_row=1)) as monitor:
        for step in range(1, 5):
            optimizer.zero_grad()
            scaler.scale(small_loss(model, step)).backward()
            model[0].weight.grad[0, 0] = math.inf
            scaler.unscale_(optimizer)
            if monitor.step(1.0) or step == 1:
                scaler.step(optimizer)
                scaler.update()
    assert scaler.get_scale() == 2.0**20 / 2**4


def test_policies_leave_a_scaler_to_find_its_scale() -> None:
    model, optimizer = small_training()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
    policy = [RecomputeStep(rehearsal=False), LowerLearningRate(), SkipUpdate()]
    with TrainingMonitor(model, optimizer, hardware=False, scaler=scaler, policy=policy) as monitor:
        for step in range(1, 12):

            def compute(step: int = step) -> torch.Tensor:
                optimizer.zero_grad()
                loss = small_loss(model, step)
                scaler.scale(loss).backward()
                if step > 2:
                    model[0].weight.grad[0, 0] = math.inf
                scaler.unscale_(optimizer)
                return loss.detach()

            if monitor.step(compute(), recompute=compute):
                scaler.step(optimizer)
            scaler.update()
    others = [repair.step for repair in monitor.repairs if repair.policy != "RecomputeStep"]
    assert others == [11, 11]
    assert {repair.verdict for repair in monitor.repairs if repair.policy == "RecomputeStep"} == {"agrees"}


def test_a_recomputation_that_returns_no_loss_is_told_in_one_line_and_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    toy, log = Toy(), tmp_path / "run.jsonl"

    def compute() -> None:
        toy.compute()

    with (
        caplog.at_level(logging.INFO, "rmetric"),
        toy.watch(policy=RecomputeStep(), log=log, announce=True) as monitor,
    ):
        for _ in range(5):
            loss = toy.compute()
            assert monitor.step(loss, recompute=compute)  # type: ignore[arg-type]
            toy.optimizer.step()
    told = [message for message in caplog.messages if "nothing is repaired any more" in message]
    assert [message.partition("step 3, ")[2] for message in told] == [
        "recompute must return the loss of the step; it has returned None"
    ]
    assert "nothing could be repaired any more from step 3 on" in caplog.messages[-1]
    assert [event["step"] for event in lines_of(log.read_bytes()) if event["event"] == "REPAIRS_ENDED"] == [3]


def test_a_run_that_is_resumed_with_repairs_at_work_tells_no_more_of_their_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, state = tmp_path / "run.jsonl", {}
    for recompute, steps in ((lambda: None, 5), (None, 3)):
        toy = Toy()
        with (
            caplog.at_level(logging.INFO, "rmetric"),
            toy.watch(policy=RecomputeStep(), log=log, announce=True) as monitor,
        ):
            monitor.load_state_dict(state) if state else None
            for _ in range(steps):
                monitor.step(toy.compute(), recompute=recompute)  # type: ignore[arg-type]
                toy.optimizer.step()
            state = monitor.state_dict()
    ends = [event for event in lines_of(log.read_bytes()) if event["event"] == "REPAIRS_ENDED"]
    assert [(event["step"], event.get("over")) for event in ends] == [(3, None), (6, True)]
    assert "repaired any more" not in caplog.messages[-1]


def test_a_policy_that_cannot_be_closed_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(Policy):
        def close(self) -> None:
            raise RuntimeError("mine")

    model, optimizer = small_training()
    before = hooks_of(model, optimizer)
    monitor = TrainingMonitor(
        model, optimizer, hardware=False, announce=False, policy=[Stuck(), LowerLearningRate(), RecomputeStep()]
    )
    with caplog.at_level(logging.WARNING, logger="rmetric"):
        monitor.close()
    assert hooks_of(model, optimizer) == before
    assert caplog.messages == ["while the monitor was closed: mine"]


@pytest.mark.parametrize("answer", [None, True, "skip"])
def test_an_answer_that_is_no_decision_ends_the_repairs_and_not_the_updates(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Watching(Policy):
        def inspect(self, context: StepContext) -> bool:
            return True

        def before_update(self, context: StepContext) -> Decision:
            return answer

    model, optimizer = small_training()
    with TrainingMonitor(model, optimizer, hardware=False, announce=False, policy=Watching()) as monitor:
        for step in range(1, 4):
            optimizer.zero_grad()
            small_loss(model, step).backward()
            assert monitor.step(1.0)
            optimizer.step()
    told = f"Watching.before_update gave {answer!r}; Decision.PASS, ACCEPT or SKIP is due"
    assert [message for message in caplog.messages if told in message and "nothing is repaired any more" in message]
