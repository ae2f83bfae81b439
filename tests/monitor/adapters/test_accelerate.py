"""Tests of the adapter for loops with Accelerate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DistributedType
from torch import Tensor, nn

from rmetric.errors import UserError
from rmetric.log_reader import read_log
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.adapters import monitored
from rmetric.monitor.worker_lost import WorkerLost
from tests.monitor.adapters.reference import CLIP, LEARNING_RATE, small_model, stacked, tokens, train

ACCUMULATED = 3
STEPS = 5


@pytest.fixture(autouse=True)
def fresh_state() -> Iterator[None]:
    """Accelerate keeps its state for the whole process."""
    yield
    AcceleratorState._reset_state()
    GradientState._reset_state()


def micro_batches(count: int = STEPS * ACCUMULATED) -> list[dict[str, Tensor]]:
    data = tokens(2 * count)
    return [stacked(data[2 * index : 2 * index + 2]) for index in range(count)]


def scaled(accelerator: Accelerator) -> Accelerator:
    """FP16 needs a GPU; a scaler of 2^16 on the CPU is the same to the adapter."""
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    accelerator.native_amp = True
    accelerator.state._mixed_precision = "fp16"
    return accelerator


def prepared(model: nn.Module) -> tuple[Accelerator, nn.Module, torch.optim.Optimizer]:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATED)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    return accelerator, *accelerator.prepare(model, optimizer)


def loop(
    accelerator: Accelerator, model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[dict[str, Tensor]]
) -> None:
    """The loop of Accelerate's manual; it knows nothing of the monitor."""
    for batch in batches:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad()


def test_a_loop_is_watched_without_a_further_line(tmp_path: Path) -> None:
    expected = train(small_model(), micro_batches(), ACCUMULATED)
    accelerator, model, optimizer = prepared(small_model())
    log = tmp_path / "run.jsonl"
    with monitored(accelerator, model, optimizer, log=log, hardware=False) as monitor:
        loop(accelerator, model, optimizer, micro_batches())
        monitor.validation(1.5)
    run = read_log(log)
    seen = run.observations
    assert seen.step.tolist() == list(range(1, STEPS + 1))
    np.testing.assert_allclose(seen["training_loss"], expected.loss, rtol=1e-5)
    np.testing.assert_allclose(seen["grad_norm"], expected.grad_norm, rtol=1e-4)
    np.testing.assert_allclose(seen["sigma_sq"][1:], expected.sigma_sq[1:], rtol=1e-2)
    assert run.terminal == {"event": "EXPERIMENT_SUCCESS", "step": STEPS}
    steps, losses = run.evaluations()
    assert (steps.tolist(), losses.tolist()) == ([STEPS], [1.5])
    assert not {"backward", "unscale_gradients"} & vars(accelerator).keys()


def test_a_closure_that_is_evaluated_several_times_is_one_step(tmp_path: Path) -> None:
    model = small_model()
    accelerator = Accelerator(cpu=True)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=3)
    model, optimizer = accelerator.prepare(model, optimizer)
    log, firsts = tmp_path / "run.jsonl", []

    with monitored(accelerator, model, optimizer, log=log, hardware=False, announce=False):
        for batch in micro_batches(count=STEPS):
            losses: list[float] = []

            def closure(batch: dict[str, Tensor] = batch, losses: list[float] = losses) -> Tensor:
                optimizer.zero_grad()
                loss: Tensor = model(**batch).loss
                accelerator.backward(loss)
                losses.append(loss.item())
                return loss

            optimizer.step(closure)
            assert len(losses) > 1
            firsts.append(losses[0])
    seen = read_log(log).observations
    assert seen.step.tolist() == list(range(1, STEPS + 1))
    np.testing.assert_allclose(seen["training_loss"], firsts, rtol=1e-5)
    assert min(seen["update_rms"][1:]) > 0.0
    assert not optimizer.optimizer._optimizer_step_pre_hooks and not optimizer.optimizer._optimizer_step_post_hooks


def test_the_loss_of_a_step_that_is_cut_short_is_still_a_mean(tmp_path: Path) -> None:
    """The last step of an epoch may have fewer micro-batches; its loss must not look like a drop."""
    batches = micro_batches(4)
    accelerator, model, optimizer = prepared(small_model())
    log = tmp_path / "run.jsonl"
    with monitored(accelerator, model, optimizer, log=log, hardware=False):
        loop(accelerator, model, optimizer, batches[:3])
        last = model(**batches[3]).loss.item()
        accelerator.gradient_state._set_sync_gradients(True)
        accelerator.backward(model(**batches[3]).loss)
    assert read_log(log).observations["training_loss"][-1] == pytest.approx(last, rel=1e-5)


def test_an_exception_leaves_an_incomplete_log_and_no_trace(tmp_path: Path) -> None:
    accelerator, model, optimizer = prepared(small_model())
    log = tmp_path / "run.jsonl"
    with (
        pytest.raises(KeyboardInterrupt),
        monitored(accelerator, model, optimizer, log=log, hardware=False),
    ):
        loop(accelerator, model, optimizer, micro_batches())
        raise KeyboardInterrupt
    run = read_log(log)
    assert run.terminal is None
    assert run.last_step == STEPS
    assert not {"backward", "unscale_gradients"} & vars(accelerator).keys()


def test_a_worker_that_dies_in_the_backward_pass_is_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator, model, optimizer = prepared(small_model())
    log = tmp_path / "run.jsonl"
    original = Accelerator.backward

    def die(self: Accelerator, loss: Tensor, **options: Any) -> None:
        if len(calls) == 2 * ACCUMULATED:
            raise WorkerLost(1)
        calls.append(loss)
        original(self, loss, **options)

    calls: list[Tensor] = []
    monkeypatch.setattr(Accelerator, "backward", die)
    with monitored(accelerator, model, optimizer, log=log, hardware=False), pytest.raises(WorkerLost):
        loop(accelerator, model, optimizer, micro_batches())
    run = read_log(log)
    assert (run.terminal["event"], run.terminal["reason"]) == ("EXPERIMENT_FAILURE", "WORKER_LOST")
    (event,) = (event for event in run.events if event["event"] == "HARDWARE_EVENT")
    assert (event["kind"], event["worker"]) == ("fatal", 1)


def test_losses_of_one_step_may_have_several_shapes() -> None:
    accelerator, model, optimizer = prepared(small_model())
    with monitored(accelerator, model, optimizer, hardware=False, announce=False) as monitor:
        for number, batch in enumerate(micro_batches()):
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss.reshape(1) if number % 2 else loss)
                optimizer.step()
                optimizer.zero_grad()
    assert monitor.step_number == STEPS and monitor.last is not None and monitor.last["training_loss"] > 0.0


def test_its_optimizer_may_be_given_to_the_monitor_itself(tmp_path: Path) -> None:
    accelerator, model, optimizer = prepared(small_model())
    with TrainingMonitor(model, optimizer, log=tmp_path / "run.jsonl", hardware=False, announce=False) as monitor:
        for batch in micro_batches(count=STEPS):
            loss = model(**batch).loss
            accelerator.backward(loss)
            monitor.step(loss)
            optimizer.step()
            optimizer.zero_grad()
    assert np.isfinite(read_log(tmp_path / "run.jsonl").observations["update_rms"][1:]).all()


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
def test_scaled_gradients_are_unscaled_once(sync: bool, tmp_path: Path) -> None:
    """A spoilt step is vetoed or skipped."""
    accelerator, model, optimizer = prepared(small_model())
    scaled(accelerator)._optimizers.clear()
    optimizer = accelerator.prepare_optimizer(optimizer.optimizer)  # type: ignore[attr-defined]
    plain = train(small_model(), micro_batches(), ACCUMULATED)
    log = tmp_path / "run.jsonl"
    with monitored(accelerator, model, optimizer, log=log, hardware=False, sync=sync):
        loop(accelerator, model, optimizer, micro_batches())
    seen = read_log(log).observations
    np.testing.assert_allclose(seen["grad_norm"], plain.grad_norm, rtol=1e-3)
    np.testing.assert_allclose(seen["training_loss"], plain.loss, rtol=1e-3)


def in_two_passes(with_scaler: bool, log: Path | None) -> tuple[list[Tensor], list[float], list[float]]:
    """A loop with two losses a step, each with a pass of its own: weights at the end, losses, gradient norms."""
    torch.manual_seed(0)
    accelerator, model = Accelerator(cpu=True), nn.Linear(4, 2)
    model, optimizer = (scaled(accelerator) if with_scaler else accelerator).prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.1)
    )
    losses, norms = [], []
    with monitored(accelerator, model, optimizer, log=log, hardware=False) if log else nullcontext():
        for _ in range(STEPS):
            out = model(torch.randn(8, 4))
            pair = out.square().mean(), (out - 1.0).abs().mean()
            accelerator.backward(pair[0], retain_graph=True)
            accelerator.backward(pair[1])
            whole = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
            norms.append(float(whole.norm()) / (2.0**16 if with_scaler else 1.0))
            losses.append(sum(float(loss.detach()) for loss in pair) / 2.0)
            accelerator.clip_grad_norm_(model.parameters(), 0.01)
            optimizer.step()
            optimizer.zero_grad()
    return [*model.parameters()], losses, norms


@pytest.mark.parametrize("with_scaler", [False, True])
def test_two_losses_with_a_pass_each_are_one_step(with_scaler: bool, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    weights, losses, norms = in_two_passes(with_scaler, log)
    assert all(map(torch.equal, weights, in_two_passes(with_scaler, None)[0]))
    seen = read_log(log).observations
    assert seen.step.tolist() == list(range(1, STEPS + 1))
    known = slice(0 if with_scaler else 1, None)  # that a step has two passes is known from the first one
    np.testing.assert_allclose(seen["training_loss"][known], losses[known], rtol=1e-5)
    np.testing.assert_allclose(seen["grad_norm"][known], norms[known], rtol=1e-4)


def test_updates_without_a_pass_that_is_seen_are_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    accelerator, model, optimizer = prepared(nn.Linear(4, 2))
    with monitored(accelerator, model, optimizer, hardware=False):
        for _ in range(STEPS):
            model(torch.ones(8, 4)).sum().backward()
            optimizer.step()
    (told,) = [message for message in caplog.messages if "no backward pass was seen" in message]
    assert "call accelerator.backward(loss) in place of loss.backward()" in told


def test_a_way_to_distribute_that_hides_gradients_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator, model, optimizer = prepared(small_model())
    monkeypatch.setattr(Accelerator, "distributed_type", DistributedType.DEEPSPEED)
    with (
        pytest.raises(UserError, match="DEEPSPEED keeps gradients to itself"),
        monitored(accelerator, model, optimizer, hardware=False),
    ):
        raise AssertionError("not reached")


def test_a_vetoed_step_finds_no_gradients() -> None:
    accelerator, model, optimizer = prepared(small_model())
    weight = next(model.parameters())
    weight.register_hook(lambda gradient: gradient * math.nan)
    before = [parameter.clone() for parameter in model.parameters()]
    with monitored(accelerator, model, optimizer, hardware=False, sync=True) as monitor:
        loop(accelerator, model, optimizer, micro_batches(ACCUMULATED))
        assert monitor.alerts["numerics"] == 1
    assert all(map(torch.equal, model.parameters(), before))


def test_an_option_that_there_is_not_is_an_error_before_the_loop() -> None:
    accelerator, model, optimizer = prepared(small_model())
    with (
        pytest.raises(UserError, match="unknown option of monitored 'logs'; did you mean 'log'"),
        monitored(accelerator, model, optimizer, logs="run.jsonl"),
    ):
        pass


@pytest.mark.parametrize("generator_first", [True, False])
def test_the_passes_of_another_network_are_no_steps_of_this_one(generator_first: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    accelerator, generator, critic = Accelerator(cpu=True), nn.Linear(4, 4), nn.Linear(4, 1)
    optimizers = [torch.optim.SGD(network.parameters(), lr=0.01) for network in (generator, critic)]
    generator, critic, *optimizers = accelerator.prepare(generator, critic, *optimizers)
    log, losses = tmp_path / "run.jsonl", []
    turns = [(generator, optimizers[0], 0.0), (critic, optimizers[1], 1000.0)]
    with monitored(accelerator, generator, optimizers[0], log=log, hardware=False):
        for _ in range(STEPS):
            noise = torch.randn(8, 4)
            for network, optimizer, offset in turns if generator_first else turns[::-1]:
                made = generator(noise) if network is generator else generator(noise).detach()
                loss = offset + (critic(made).mean() - 1.0).square()
                accelerator.backward(loss)
                losses += [loss.item()] if network is generator else []
                optimizer.step()
                for each in optimizers:
                    each.zero_grad()
    np.testing.assert_allclose(read_log(log).observations["training_loss"], losses, rtol=1e-6)
