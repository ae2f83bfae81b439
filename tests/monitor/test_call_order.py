"""A monitor that is called at the wrong place says so once, with the line to change; a loop in order hears nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rmetric.diagnosis import diagnose
from rmetric.log_reader import read_log
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.repair import RecomputeStep
from rmetric.replay import replay_log
from tests.live.live import make_live_run, watched
from tests.live.live import train as train_live
from tests.monitor.common import small_loss, small_training, train

STEPS = 80
Loop = Callable[["Training"], None]


class Training:
    """A small model in training, with its monitor."""

    def __init__(self, **options: Any) -> None:
        self.model, self.optimizer = small_training()
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=5)
        self.monitor = TrainingMonitor(
            self.model, self.optimizer, hardware=False, announce=False, scaler=self.scaler, **options
        )

    def losses(self) -> Iterator[Tensor]:
        for step in range(1, STEPS + 1):
            yield small_loss(self.model, step)

    def step(self, loss: Tensor) -> None:
        """A step in order."""
        self.optimizer.zero_grad()
        loss.backward()
        self.monitor.step(loss)
        self.optimizer.step()


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """Warnings of the monitor so far."""
    with caplog.at_level(logging.WARNING, "rmetric"):
        yield lambda: [record.getMessage() for record in caplog.records if record.name == "rmetric"]


# -- what is told ------------------------------------------------------------------------------------------------------


def before_backward(training: Training, **clear: Any) -> None:
    for loss in training.losses():
        training.optimizer.zero_grad(**clear)
        training.monitor.step(loss)
        loss.backward()
        training.optimizer.step()


def before_backward_cleared_to_zero(training: Training) -> None:
    before_backward(training, set_to_none=False)


def after_the_update(training: Training) -> None:
    for loss in training.losses():
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()
        training.monitor.step(loss)


def after_clearing(training: Training, **clear: Any) -> None:
    for loss in training.losses():
        loss.backward()
        training.optimizer.step()
        training.optimizer.zero_grad(**clear)
        training.monitor.step(loss)


def after_clearing_to_zero(training: Training) -> None:
    after_clearing(training, set_to_none=False)


def after_clipping(training: Training) -> None:
    for loss in training.losses():
        training.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(training.model.parameters(), 0.1)
        training.monitor.step(loss)
        training.optimizer.step()


def twice(training: Training) -> None:
    for loss in training.losses():
        training.optimizer.zero_grad()
        loss.backward()
        training.monitor.step(loss)
        training.monitor.step(loss)
        training.optimizer.step()


def after_each_micro_batch(training: Training) -> None:
    for number, loss in enumerate(training.losses(), 1):
        loss.backward()
        training.monitor.step(loss)
        if number % 4 == 0:
            training.optimizer.step()
            training.optimizer.zero_grad()


def never_cleared(training: Training) -> None:
    for loss in training.losses():
        loss.backward()
        training.monitor.step(loss)
        training.optimizer.step()


def never_cleared_micro_batches(training: Training) -> None:
    for number, loss in enumerate(training.losses(), 1):
        (loss / 4).backward()
        if number % 4 == 0:
            training.monitor.step(loss)
            training.optimizer.step()


def no_update_at_all(training: Training) -> None:
    for loss in training.losses():
        training.optimizer.zero_grad()
        loss.backward()
        training.monitor.step(loss)


def updates_by_hand(training: Training) -> None:
    for loss in training.losses():
        training.model.zero_grad()
        loss.backward()
        training.monitor.step(loss)
        for parameter in training.model.parameters():
            assert parameter.grad is not None
            parameter.data.add_(parameter.grad, alpha=-0.01)


def the_optimizer_that_does_nothing(training: Training) -> None:
    other = torch.optim.SGD(training.model.parameters(), lr=0.01)
    for loss in training.losses():
        other.zero_grad()
        loss.backward()
        training.monitor.step(loss)
        other.step()


def another_optimizer_half_way(training: Training) -> None:
    optimizer = training.optimizer
    for number, loss in enumerate(training.losses(), 1):
        if number == 20:
            optimizer = torch.optim.SGD(training.model.parameters(), lr=0.03)
        optimizer.zero_grad()
        loss.backward()
        training.monitor.step(loss)
        optimizer.step()


def not_unscaled(training: Training) -> None:
    scaled(training, unscale=False)


def after_the_scaled_update(training: Training) -> None:
    scaler = training.scaler
    for loss in training.losses():
        training.optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(training.optimizer)
        scaler.update()
        training.monitor.step(loss)


MISUSES: dict[Loop, str] = {
    before_backward: "called before loss.backward()",
    before_backward_cleared_to_zero: "called before loss.backward()",
    after_the_update: "called after optimizer.step() or zero_grad()",
    after_clearing: "called after optimizer.step() or zero_grad()",
    after_clearing_to_zero: "called after optimizer.step() or zero_grad()",
    after_clipping: "call it before clip_grad_norm_",
    twice: "called twice for the same gradients",
    after_each_micro_batch: "after each of several backward passes",
    never_cleared: "add optimizer.zero_grad()",
    never_cleared_micro_batches: "add optimizer.zero_grad()",
    not_unscaled: "call scaler.unscale_(optimizer) before it",
    after_the_scaled_update: "called after optimizer.step() or zero_grad()",
    no_update_at_all: "has made no step in 64 calls",
    updates_by_hand: "makes no step, though its parameters change",
    the_optimizer_that_does_nothing: "makes no step, though its parameters change",
    another_optimizer_half_way: "makes no step, though its parameters change",
}


@pytest.mark.slow
@pytest.mark.parametrize("loop", MISUSES, ids=lambda loop: loop.__name__)
def test_a_misuse_is_told_once_and_nothing_else(loop: Loop, heard: Callable[[], list[str]]) -> None:
    training = Training(detectors=[])
    loop(training)
    [message] = heard()
    assert MISUSES[loop] in message
    assert training.monitor.enabled
    training.monitor.close()
    assert not training.optimizer._optimizer_step_pre_hooks and not training.optimizer._optimizer_step_post_hooks


@pytest.mark.parametrize("loop", [after_clipping, before_backward_cleared_to_zero, after_clearing_to_zero])
def test_a_run_whose_loop_calls_the_monitor_at_the_wrong_place_is_not_in_order_and_alerts_nobody(
    loop: Loop, tmp_path: Path, heard: Callable[[], list[str]]
) -> None:
    training = Training(log=tmp_path / "run.jsonl")
    loop(training)
    training.monitor.close()
    [message] = heard()
    assert MISUSES[loop] in message and training.monitor.alerts == {}
    replay = replay_log(tmp_path / "run.jsonl")
    assert replay.own.sentence.startswith("cannot be judged, the monitor was called at the wrong place")
    assert not replay.own.in_order


def test_a_gradient_of_zero_in_a_loop_in_order_is_an_alert(heard: Callable[[], list[str]]) -> None:
    training = Training()
    for number, loss in enumerate(training.losses(), 1):
        training.optimizer.zero_grad()
        (loss * (number != 40)).backward()
        training.monitor.step(loss)
        training.optimizer.step()
    assert training.monitor.alerts["numerics"] == 40
    training.monitor.close()


@pytest.mark.parametrize("loop", [another_optimizer_half_way, updates_by_hand])
def test_an_optimizer_that_does_not_make_the_updates_has_no_learning_rate_and_the_run_is_judged(
    loop: Loop, tmp_path: Path
) -> None:
    training = Training(detectors=[], log=tmp_path / "run.jsonl")
    loop(training)
    training.monitor.close()
    rates = read_log(tmp_path / "run.jsonl").observations["learning_rate"]
    assert np.isnan(rates[-10:]).all() and not np.isnan(rates[:60]).any()
    replay = replay_log(tmp_path / "run.jsonl")
    assert replay.own is not None and replay.own.in_order
    assert replay.own.sentence.endswith("; the optimizer that was watched did not make the updates")


def test_updates_by_hand_are_seen_between_records_that_come_seldom(heard: Callable[[], list[str]]) -> None:
    training = Training(detectors=[], record_every=500)
    updates_by_hand(training)
    assert ["makes no step, though its parameters change" in told for told in heard()] == [True]


@pytest.mark.parametrize("evaluating", ["the model", "its dropout", "nothing"])
def test_a_model_that_trains_in_evaluation_mode_is_told_of_once(
    evaluating: str, tmp_path: Path, heard: Callable[[], list[str]]
) -> None:
    model = nn.Sequential(nn.Linear(6, 2), nn.Dropout(0.1))
    {"the model": model, "its dropout": model[1], "nothing": nn.Identity()}[evaluating].eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with TrainingMonitor(
        model, optimizer, hardware=False, announce=False, detectors=[], log=tmp_path / "run.jsonl"
    ) as monitor:
        train(monitor, model, optimizer, range(1, STEPS + 1))
    assert ["call model.train() before the first step" in message for message in heard()] == (
        [True] if evaluating == "the model" else []
    )
    replay, told = replay_log(tmp_path / "run.jsonl"), "the model was in evaluation mode while it trained"
    assert replay.own is not None and replay.own.in_order  # it may be meant
    assert replay.own.sentence.endswith(f"; {told}") == (evaluating == "the model")
    assert diagnose(tmp_path / "run.jsonl").notes == ((told,) if evaluating == "the model" else ())


def in_the_backward_pass(training: Training, log: Path) -> None:
    training.monitor.detach()
    optimizers = {p: torch.optim.SGD([p], lr=0.05) for p in training.model.parameters()}

    def update(parameter: nn.Parameter) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    handles = [p.register_post_accumulate_grad_hook(update) for p in training.model.parameters()]
    first = next(iter(optimizers.values()))
    with TrainingMonitor(training.model, first, hardware=False, announce=False, detectors=[], log=log) as monitor:
        for loss in training.losses():
            loss.backward()
            monitor.step(loss)
    for handle in handles:
        handle.remove()


def test_where_updates_use_up_the_gradients_it_is_said_that_none_are_watched(
    tmp_path: Path, heard: Callable[[], list[str]]
) -> None:
    in_the_backward_pass(Training(), tmp_path / "run.jsonl")
    [message] = heard()
    assert "an optimizer that steps inside backward() uses them up" in message
    replay = replay_log(tmp_path / "run.jsonl")
    assert replay.own is not None and replay.own.in_order  # as far as it was watched
    assert replay.own.sentence.endswith("; no gradient was there to be watched")


@pytest.mark.parametrize("resting", [STEPS, 10])
def test_a_learning_rate_of_0_from_the_first_step_on_is_told(
    resting: int, tmp_path: Path, heard: Callable[[], list[str]]
) -> None:
    training = Training(detectors=[], log=tmp_path / "run.jsonl")
    for step, loss in enumerate(training.losses()):
        training.optimizer.param_groups[0]["lr"] = 0.0 if step < resting else 0.01
        training.step(loss)
    training.monitor.close()
    rests = resting == STEPS
    assert ["the learning rate was 0 in the first 64 steps" in message for message in heard()] == [True] * rests
    replay = replay_log(tmp_path / "run.jsonl")
    assert replay.own is not None and replay.own.in_order
    assert replay.own.sentence.endswith("; the learning rate was 0 in its first steps") == rests


def test_use_after_close_is_told_once(heard: Callable[[], list[str]]) -> None:
    training = Training()
    training.monitor.close()
    for loss in training.losses():
        assert training.monitor.step(loss)
    [message] = heard()
    assert "called after monitor.close()" in message


WRONG = [None, "loss", torch.ones(3), (1.0, 2.0), 1j, torch.tensor(1 + 1j), torch.ones(1).to_sparse()]


@pytest.mark.parametrize("wrong", [*WRONG, torch.ones((), device="meta")])
def test_what_is_no_loss_is_told_once_and_training_is_watched_all_the_same(
    wrong: Any, heard: Callable[[], list[str]]
) -> None:
    training = Training(detectors=[], policy=RecomputeStep(rehearsal=False))
    for loss in training.losses():
        training.optimizer.zero_grad()
        loss.backward()
        assert training.monitor.step(wrong)
        training.optimizer.step()
    training.monitor.validation(wrong)
    [message] = heard()
    assert "take one real number" in message and "loss.real" in message
    last = training.monitor.last
    assert training.monitor.enabled and last is not None
    assert last["training_loss"] != last["training_loss"] and last["grad_norm"] > 0.0


# -- what is in order --------------------------------------------------------------------------------------------------


def as_documented(training: Training, **clear: Any) -> None:
    for loss in training.losses():
        loss.backward()
        training.monitor.step(loss)
        nn.utils.clip_grad_norm_(training.model.parameters(), 0.1)
        training.optimizer.step()
        training.optimizer.zero_grad(**clear)


def cleared_to_zero(training: Training) -> None:
    as_documented(training, set_to_none=False)


def cleared_as_in_old_days(training: Training) -> None:
    for loss in training.losses():
        for parameter in training.model.parameters():
            if parameter.grad is not None:
                parameter.grad.data.zero_()
        loss.backward()
        training.monitor.step(loss)
        training.optimizer.step()


def accumulated(training: Training) -> None:
    for number, loss in enumerate(training.losses(), 1):
        (loss / 4).backward()
        if number % 4 == 0:
            training.monitor.step(loss)
            training.optimizer.step()
            training.optimizer.zero_grad()


def some_batches_left_out(training: Training) -> None:
    for number, loss in enumerate(training.losses(), 1):
        training.optimizer.zero_grad()
        loss.backward()
        if training.monitor.step(loss) and number % 3:
            training.optimizer.step()


def scaled(training: Training, unscale: bool = True) -> None:
    scaler = training.scaler
    for loss in training.losses():
        training.optimizer.zero_grad()
        scaler.scale(loss).backward()
        if unscale:
            scaler.unscale_(training.optimizer)
        training.monitor.step(loss)
        scaler.step(training.optimizer)
        scaler.update()


def gradients_made_aside(training: Training) -> None:
    """Surgery on gradients of several losses: ``torch.autograd.grad`` adds nothing up; what is there is replaced."""
    parameters = [*training.model.parameters()]
    for loss in training.losses():
        halves = [torch.autograd.grad(0.5 * loss, parameters, retain_graph=True) for _ in range(2)]
        for parameter, *gradients in zip(parameters, *halves, strict=True):
            parameter.grad = torch.stack(gradients).sum(dim=0)
        training.monitor.step(loss)
        training.optimizer.step()


def frozen_half_way(training: Training) -> None:
    for number, loss in enumerate(training.losses(), 1):
        training.step(loss)
        training.model[0].requires_grad_(number % 20 < 10)


def closure(training: Training) -> None:
    for step in range(1, STEPS + 1):

        def compute(step: int = step) -> float:
            training.optimizer.zero_grad()
            loss = small_loss(training.model, step)
            loss.backward()
            training.monitor.step(loss)
            return float(loss.detach())

        training.optimizer.step(compute)


def after_a_closure(training: Training) -> None:
    """The only place outside the closure; ``LBFGS`` calls it several times in an update."""
    training.monitor.detach()
    optimizer = torch.optim.LBFGS(training.model.parameters(), lr=0.1, max_iter=4)
    with TrainingMonitor(training.model, optimizer, hardware=False, announce=False, detectors=[]) as monitor:
        for step in range(1, STEPS + 1):

            def compute(step: int = step) -> Tensor:
                optimizer.zero_grad()
                loss = small_loss(training.model, step)
                loss.backward()
                return loss

            monitor.step(optimizer.step(compute))
    assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks


def a_closure_of_many_passes(training: Training) -> None:
    """Each of them has other weights, and all of them are one update."""
    training.monitor.detach()
    optimizer = torch.optim.LBFGS(training.model.parameters(), lr=0.01, max_iter=60, tolerance_change=0.0)
    with TrainingMonitor(training.model, optimizer, hardware=False, announce=False, detectors=[]) as monitor:
        for _ in range(3):

            def compute() -> Tensor:
                optimizer.zero_grad()
                loss = small_loss(training.model, 1)
                loss.backward()
                monitor.step(loss)
                return loss

            optimizer.step(compute)
        assert monitor.step_number > 150


def compiled_update(training: Training, after: int = 0) -> None:
    """Its steps are not seen from then on."""

    @torch.compile(backend="eager")
    def update() -> None:
        training.optimizer.step()

    for number, loss in enumerate(training.losses()):
        training.optimizer.zero_grad()
        loss.backward()
        training.monitor.step(loss)
        update() if number >= after else training.optimizer.step()


def compiled_half_way(training: Training) -> None:
    compiled_update(training, after=10)


def rests(training: Training) -> None:
    """Its own weights stand still; those of another optimizer move."""
    training.monitor.detach()
    first, last = (torch.optim.SGD(training.model[place].parameters(), lr=0.05) for place in (0, 2))
    with TrainingMonitor(training.model, first, hardware=False, announce=False, detectors=[]) as monitor:
        for number, loss in enumerate(training.losses(), 1):
            training.model.zero_grad()
            loss.backward()
            monitor.step(loss)
            (first if number < 20 else last).step()


def adversarial(training: Training) -> None:
    """The discriminator is watched; the other network adds to its gradients, which are cleared before its own pass."""
    generator = nn.Linear(6, 6)
    other = torch.optim.SGD(generator.parameters(), lr=0.01)
    for loss in training.losses():
        training.step(loss)
        other.zero_grad()
        training.model(generator(torch.ones(3, 6))).sum().backward()
        other.step()


def full_batch_that_has_converged(training: Training) -> None:
    for _ in range(STEPS):
        training.step(small_loss(training.model, 1))


IN_ORDER: list[Loop] = [
    as_documented,
    cleared_to_zero,
    cleared_as_in_old_days,
    accumulated,
    some_batches_left_out,
    scaled,
    gradients_made_aside,
    frozen_half_way,
    closure,
    after_a_closure,
    a_closure_of_many_passes,
    compiled_update,
    compiled_half_way,
    rests,
    adversarial,
    full_batch_that_has_converged,
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # torch compiles its own
@pytest.mark.parametrize("loop", IN_ORDER, ids=lambda loop: loop.__name__)
def test_nothing_is_told_of_a_loop_in_order(loop: Loop, heard: Callable[[], list[str]]) -> None:
    training = Training(detectors=[])
    loop(training)
    training.monitor.close()
    assert heard() == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # torch compiles its own
def test_a_compiled_update_is_compiled_as_without_a_monitor() -> None:
    breaks, weights = [], []
    for watched_too in (True, False):
        torch.compiler.reset()
        torch._dynamo.utils.counters.clear()
        training = Training(detectors=[])
        if not watched_too:
            training.monitor.close()
        compiled_update(training)
        breaks.append(dict(torch._dynamo.utils.counters["graph_break"]))
        weights.append(nn.utils.parameters_to_vector(training.model.parameters()))
    assert breaks[0].keys() == breaks[1].keys()
    assert torch.equal(*weights)


@pytest.mark.slow
def test_nothing_is_told_of_a_run_that_is_resumed_and_one_with_a_policy(heard: Callable[[], list[str]]) -> None:
    for policy in (None, RecomputeStep):
        run = make_live_run(workers=2, rows=2, length=8)
        monitor = watched(run, announce=False, detectors=[], policy=policy and policy())
        train_live(run, 10)
        state, weights = monitor.state_dict(), run.state_dict()
        monitor.close()
        run = make_live_run(workers=2, rows=2, length=8).load_state_dict(weights)
        monitor = watched(run, announce=False, detectors=[], policy=policy and policy())
        monitor.load_state_dict(state)
        train_live(run, 10)
        monitor.close()
    assert heard() == []


@pytest.mark.parametrize("closed", [False, True])
def test_no_gradient_is_kept_alive_by_what_knows_it_again(closed: bool) -> None:
    model, optimizer = small_training()
    monitor = TrainingMonitor(model, optimizer, hardware=False)
    for step in range(3):
        loss = small_loss(model, step)
        loss.backward()
        monitor.step(loss)
        optimizer.step()
        gradients = [ref(parameter.grad) for parameter in model.parameters() if parameter.grad is not None]
        assert len(gradients) == 4
        if closed:
            monitor.close()
        optimizer.zero_grad()
        assert not any(gradient() is not None for gradient in gradients)
