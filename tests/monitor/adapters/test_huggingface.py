"""Tests of the callback in the stock Trainer of transformers."""

from __future__ import annotations

import gc
import logging
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import Tensor
from transformers import Trainer, TrainerCallback, TrainingArguments

from rmetric.errors import UserError
from rmetric.log_reader import read_log
from rmetric.monitor.adapters import RMetricCallback
from tests.helpers import lines_of
from tests.live.processes import run_processes
from tests.monitor.adapters.reference import CLIP, LEARNING_RATE, small_model, stacked, tokens, train, without_times

ACCUMULATED = 3
BACKWARD, FETCH = Accelerator.backward, Trainer.get_batch_samples


class Collator:
    """Makes batches and remembers them."""

    def __init__(self) -> None:
        self.made: list[dict[str, Tensor]] = []

    def __call__(self, rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        self.made.append(stacked(rows))
        return self.made[-1]


@pytest.fixture
def trainer_of(tmp_path: Path) -> Callable[..., Trainer]:
    """A Trainer with accumulation and clipping; further arguments go to TrainingArguments."""

    def build(
        *callbacks: TrainerCallback, collator: Any = stacked, kind: type[Trainer] = Trainer, **arguments: Any
    ) -> Trainer:
        settings = {
            "output_dir": str(tmp_path / "out"), "max_steps": 8, "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": ACCUMULATED, "max_grad_norm": CLIP, "learning_rate": LEARNING_RATE,
            "lr_scheduler_type": "constant", "logging_steps": 1, "report_to": [], "disable_tqdm": True,
            "use_cpu": True, "save_strategy": "no", "eval_strategy": "steps", "eval_steps": 2, "seed": 0,
        }  # fmt: skip
        return kind(
            small_model(),
            TrainingArguments(**{**settings, **arguments}),
            data_collator=collator,
            train_dataset=tokens(60),
            eval_dataset=tokens(4, seed=1),
            callbacks=list(callbacks),
        )

    return build


class Fetching(Trainer):
    """Gathers its batches itself."""

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> tuple[list[Any], None]:
        return [next(epoch_iterator) for _ in range(num_batches)], None


class At(TrainerCallback):
    """Calls something when a step begins."""

    def __init__(self, step: int, call: Callable[[], Any]) -> None:
        self.step, self.call = step, call

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step + 1 == self.step:
            self.call()


def stop() -> None:
    raise KeyboardInterrupt


def poison(trainer: Trainer, step: int) -> None:
    """From that step on the gradient of one weight is not a number, for one step."""

    def spoil(gradient: Tensor) -> Tensor:
        return gradient * math.nan if trainer.state.global_step + 1 == step else gradient

    trainer.model.model.norm.weight.register_hook(spoil)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings of this package that are no closing line."""
    own = [record.getMessage() for record in caplog.records if record.name == "rmetric"]
    return [text for text in own if not text.startswith("R-Metric: ")]


# -- what is seen -----------------------------------------------------------------------------------------------------


def test_every_micro_batch_is_seen_and_nothing_is_clipped(tmp_path: Path, trainer_of: Callable[..., Trainer]) -> None:
    collator = Collator()
    log = tmp_path / "run.jsonl"
    callback = RMetricCallback(log=log, hardware=False, config={"experiment_id": "x"})
    trainer = trainer_of(callback, collator=collator, eval_strategy="no")
    trainer.train()
    expected = train(small_model(), collator.made[: 8 * ACCUMULATED], ACCUMULATED)
    run = read_log(log)
    seen = run.observations
    assert seen.step.tolist() == list(range(1, 9))
    np.testing.assert_allclose(seen["grad_norm"], expected.grad_norm, rtol=1e-4)
    np.testing.assert_allclose(seen["training_loss"], expected.loss, rtol=1e-5)
    assert min(expected.grad_norm) > 3 * CLIP  # clipping would have shown
    own = [entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry]
    np.testing.assert_allclose(seen["grad_norm"], own, rtol=1e-5)
    np.testing.assert_allclose(seen["sigma_sq"][1:], expected.sigma_sq[1:], rtol=1e-2)
    sources = [event["source"] for event in run.events if event.get("signal") == "sigma_sq"]
    assert sources[-1] == "micro_batches"
    assert seen["learning_rate"].tolist() == [LEARNING_RATE] * 8
    assert run.config["experiment_id"] == "x"
    assert run.terminal == {"event": "EXPERIMENT_SUCCESS", "step": 8}
    assert Accelerator.backward is BACKWARD
    assert "backward" not in vars(trainer.accelerator)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Trainer, Fetching])
def test_a_compiled_model_is_watched_as_it_is_trained_and_compiled_without_a_warning(
    kind: type[Trainer], tmp_path: Path, trainer_of: Callable[..., Trainer]
) -> None:
    """The monitor is given the compiled model: of another one it would see no batch."""
    callback = RMetricCallback(log=tmp_path / "run.jsonl", hardware=False)
    fetch = kind.get_batch_samples
    compiled = {"torch_compile": True, "torch_compile_backend": "eager"}
    trainer = trainer_of(callback, kind=kind, eval_strategy="no", max_steps=3, **compiled)
    watched: list[Any] = []
    trainer.add_callback(At(2, lambda: watched.append(callback.monitor._run.order._model)))
    trainer.train()
    assert watched == [trainer.model_wrapped] and watched != [trainer.model]
    assert read_log(tmp_path / "run.jsonl").observations.step.tolist() == [1, 2, 3]
    assert kind.get_batch_samples is fetch and Trainer.get_batch_samples is FETCH


def test_without_accumulation_or_clipping_too(tmp_path: Path, trainer_of: Callable[..., Trainer]) -> None:
    collator = Collator()
    log = tmp_path / "run.jsonl"
    callback = RMetricCallback(log=log, hardware=False)
    trainer_of(
        callback, collator=collator, gradient_accumulation_steps=1, max_grad_norm=0.0, max_steps=3, eval_strategy="no"
    ).train()
    seen = read_log(log).observations
    first = small_model()
    loss = first(**collator.made[0]).loss
    loss.backward()
    norm = math.hypot(*(weight.grad.norm().item() for weight in first.parameters()))
    assert seen["training_loss"][0] == pytest.approx(loss.item(), rel=1e-5)
    assert seen["grad_norm"][0] == pytest.approx(norm, rel=1e-4)


def test_an_epoch_that_ends_in_a_smaller_step(tmp_path: Path, trainer_of: Callable[..., Trainer]) -> None:
    """40 rows are 20 micro-batches: 6 steps of 3 and one of 2, whose loss is still a mean."""
    log = tmp_path / "run.jsonl"
    trainer = trainer_of(RMetricCallback(log=log, hardware=False), max_steps=-1, num_train_epochs=2)
    trainer.train_dataset = tokens(40)
    trainer.train()
    seen = read_log(log).observations
    assert seen.step.tolist() == list(range(1, 15))
    own = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    np.testing.assert_allclose(seen["training_loss"], own, rtol=1e-4)


def test_evaluations_are_handed_on(tmp_path: Path, trainer_of: Callable[..., Trainer]) -> None:
    log = tmp_path / "run.jsonl"
    trainer = trainer_of(RMetricCallback(log=log, hardware=False), eval_on_start=True, eval_steps=3)
    trainer.train()
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    steps, seen = read_log(log).evaluations()
    assert steps.tolist() == [0, 3, 6, 8]
    np.testing.assert_allclose(seen, losses, rtol=1e-6)
    trainer.evaluate()  # after the end: nobody is there to be told


class Rewarded(Trainer):
    """Logs a reward beside its loss, as TRL's trainers of agents do: the number of the step."""

    def log(self, logs: dict[str, float], *args: Any, **options: Any) -> None:
        super().log({**logs, "reward": float(self.state.global_step)} if "loss" in logs else logs, *args, **options)


def test_rewards_are_those_of_the_next_record(tmp_path: Path, trainer_of: Callable[..., Trainer]) -> None:
    callback = RMetricCallback(log=tmp_path / "run.jsonl", hardware=False)
    trainer_of(callback, kind=Rewarded, eval_strategy="no").train()
    rewards = read_log(tmp_path / "run.jsonl").observations["reward"]
    assert np.isnan(rewards[0])
    assert rewards[1:].tolist() == [float(step) for step in range(1, 8)]


@pytest.mark.long
def test_two_processes_show_how_far_their_gradients_differ(tmp_path: Path) -> None:
    first, second = run_processes("tests.monitor.adapters.two_processes", "trainer", tmp_path)
    assert (first.code, second.code) == (0, 0), first.errors + second.errors
    run = read_log(tmp_path / "run.jsonl")
    np.testing.assert_allclose(run.observations["grad_norm"], first.found["grad_norm"], rtol=1e-5)
    sources = [event["source"] for event in run.events if event.get("signal") == "sigma_sq"]
    assert sources[-1] == "workers"
    assert run.config["num_workers"] == 2
    assert [path.name for path in tmp_path.glob("*.jsonl")] == ["run.jsonl"]  # the second process writes nothing


# -- what it reports --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_reporter_of_the_trainer_gets_the_numbers_and_an_alert_at_once(
    tmp_path: Path, trainer_of: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "tb"))
    callback = RMetricCallback(hardware=False, announce=False)
    trainer = trainer_of(callback, report_to=["tensorboard"], logging_steps=4, eval_steps=4)
    poison(trainer, 5)
    log_before = Trainer.log
    trainer.train()
    own = [entry for entry in trainer.state.log_history if "loss" in entry]
    alerts = {entry["step"]: entry["rmetric/alerts"] for entry in own}
    assert alerts == {4: 0.0, 6: 1.0, 8: 1.0}  # an alert is known a step later, and logged without waiting for step 8
    assert own[0]["rmetric/step"] == 3.0 and own[0]["rmetric/sigma_sq"] > 0.0
    assert not {"rmetric/training_loss", "rmetric/grad_norm"} & {*own[0]}  # the Trainer has them
    others = [entry for entry in trainer.state.log_history if "loss" not in entry]
    assert not [name for entry in others for name in entry if name.startswith("rmetric/")]

    read = events.EventAccumulator(str(tmp_path / "tb"))
    read.Reload()
    points = [(point.step, point.value) for point in read.Scalars("train/rmetric/alerts")]
    assert points == [(4, 0.0), (6, 1.0), (8, 1.0)]
    assert Trainer.log is log_before


# -- resume -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("said", [True, "checkpoint-4"])
def test_a_resumed_training_writes_the_log_of_one_never_interrupted(
    said: bool | str, tmp_path: Path, trainer_of: Callable[..., Trainer]
) -> None:
    whole, log = tmp_path / "whole.jsonl", tmp_path / "run.jsonl"
    saving = {"save_strategy": "steps", "save_steps": 4}
    trainer_of(RMetricCallback(log=whole, hardware=False), **saving, output_dir=str(tmp_path / "other")).train()

    interrupted = trainer_of(RMetricCallback(log=log, hardware=False), At(7, stop), **saving)
    with pytest.raises(KeyboardInterrupt):
        interrupted.train()
    left = read_log(log)
    assert left.terminal is None
    assert left.last_step >= 5

    checkpoint = said if said is True else str(tmp_path / "out" / said)
    assert (tmp_path / "out" / "checkpoint-4" / "rmetric_monitor.pt").exists()
    trainer_of(RMetricCallback(log=log, hardware=False), **saving).train(resume_from_checkpoint=checkpoint)
    resumed, expected = (without_times(lines_of(path.read_bytes())) for path in (log, whole))
    assert resumed == expected
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["run.jsonl", "whole.jsonl"]


@pytest.mark.slow
def test_a_checkpoint_of_another_place_is_named(tmp_path: Path, trainer_of: Callable[..., Trainer]) -> None:
    log, out = tmp_path / "run.jsonl", tmp_path / "out"
    trainer_of(RMetricCallback(log=log, hardware=False), save_strategy="steps", save_steps=4).train()
    moved = (out / "checkpoint-4").rename(tmp_path / "moved")
    callback = RMetricCallback(log=log, hardware=False, checkpoint=moved)
    trainer_of(callback, output_dir=str(tmp_path / "new")).train(resume_from_checkpoint=str(moved))
    assert read_log(log).observations.step.tolist() == list(range(1, 9))


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["missing", "garbage"])
def test_without_a_state_the_steps_go_on_and_the_user_is_told(
    damage: str, tmp_path: Path, trainer_of: Callable[..., Trainer], caplog: pytest.LogCaptureFixture
) -> None:
    trainer_of(RMetricCallback(hardware=False), save_strategy="steps", save_steps=4).train()
    checkpoint = tmp_path / "out" / "checkpoint-4"
    state = checkpoint / "rmetric_monitor.pt"
    if damage == "missing":
        state.unlink()
    else:
        state.write_bytes(b"no state")
    with caplog.at_level(logging.WARNING, logger="rmetric"):
        trainer_of(RMetricCallback(log=tmp_path / "run.jsonl", hardware=False)).train(
            resume_from_checkpoint=str(checkpoint)
        )
    (message,) = warnings_of(caplog)
    assert message.startswith(f"no state of the monitor in {checkpoint} (")
    assert message.endswith("; its baselines begin anew at step 4")
    assert read_log(tmp_path / "run.jsonl").observations.step.tolist() == [5, 6, 7, 8]


# -- no harm ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("sync", [True, False])
def test_a_veto_skips_the_update(sync: bool, trainer_of: Callable[..., Trainer]) -> None:
    callback = RMetricCallback(hardware=False, sync=sync)
    trainer = trainer_of(callback, max_steps=5, max_grad_norm=0.0)
    poison(trainer, 3)
    trainer.train()
    finite = all(bool(weight.isfinite().all()) for weight in trainer.model.parameters())
    assert finite is sync
    assert callback.monitor.alerts["numerics"] == 3


@pytest.mark.slow
def test_ctrl_c_leaves_a_valid_log_and_the_next_training_its_own(
    tmp_path: Path, trainer_of: Callable[..., Trainer], caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "run.jsonl"
    callback = RMetricCallback(log=log, hardware=False)
    at = At(4, stop)
    trainer = trainer_of(callback, at)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    at.step = 0
    trainer.train()
    left, done = read_log(log), read_log(tmp_path / "run-2.jsonl")
    assert left.terminal is None
    assert left.observations.step.tolist() == [1, 2, 3]  # the last one is looked at when the log is left
    assert done.terminal is not None
    assert done.observations.step.tolist() == list(range(1, 9))
    assert len(warnings_of(caplog)) == 1
    assert Accelerator.backward is BACKWARD


def test_the_last_record_is_written_when_the_program_ends(
    tmp_path: Path, trainer_of: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    due: list[Callable[[], None]] = []
    monkeypatch.setattr("rmetric.monitor.ending.atexit.register", due.append)
    monkeypatch.setattr(
        "rmetric.monitor.ending.atexit.unregister", lambda call: due.remove(call) if call in due else None
    )
    at = At(4, stop)
    trainer = trainer_of(RMetricCallback(log=tmp_path / "run.jsonl", hardware=False), at)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert read_log(tmp_path / "run.jsonl").last_step == 2
    leave, _ = due  # the callback's and its monitor's
    leave()
    run = read_log(tmp_path / "run.jsonl")
    assert (run.last_step, run.terminal) == (3, None)
    assert due == []

    at.step = 0
    trainer.train()
    assert due == []


def test_a_training_that_was_left_gives_everything_back_when_nothing_refers_to_it(
    tmp_path: Path, trainer_of: Callable[..., Trainer]
) -> None:
    trainer = trainer_of(RMetricCallback(log=tmp_path / "run.jsonl", hardware=False), At(4, stop))
    model, log = trainer.model, Trainer.log
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert Trainer.log is not log and any(weight._backward_hooks for weight in model.parameters())
    del trainer
    gc.collect()
    assert Trainer.log is log and not any(weight._backward_hooks for weight in model.parameters())
    assert read_log(tmp_path / "run.jsonl").last_step == 3


def test_a_training_that_fails_before_its_first_step_leaves_nothing_behind(
    tmp_path: Path, trainer_of: Callable[..., Trainer]
) -> None:
    at = At(1, stop)
    trainer = trainer_of(RMetricCallback(log=tmp_path / "run.jsonl", hardware=False), at, max_steps=2)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    at.step = 0
    trainer.train()
    assert Accelerator.backward is BACKWARD
    assert read_log(tmp_path / "run.jsonl").last_step == 2


def test_a_full_disk_is_said_once_and_the_training_goes_on(
    trainer_of: Callable[..., Trainer], caplog: pytest.LogCaptureFixture
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    callback = RMetricCallback(log="/dev/full", hardware=False)
    trainer = trainer_of(callback)
    trainer.train()
    assert trainer.state.global_step == 8
    assert callback.monitor.step_number == 8  # it watches on, for whoever listens to its alerts
    full, closing = caplog.messages
    assert full == "/dev/full: the disk is full; the log never starts, training goes on"
    assert closing.endswith("; there is no log")


def test_a_monitor_that_cannot_start_does_not_stop_the_training(
    trainer_of: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr("rmetric.monitor.adapters.accelerate.TrainingMonitor", fail)
    callback = RMetricCallback()
    trainer = trainer_of(callback, save_strategy="steps", save_steps=4)
    trainer.train()
    assert trainer.state.global_step == 8
    assert callback.monitor is None
    assert caplog.messages == ["the monitor's start failed, training goes on: RuntimeError: no luck"]


@pytest.mark.parametrize(
    ("wrong", "right"), [({"logs": "run.jsonl"}, "log"), ({"validation_keys": "loss"}, "validation_key")]
)
def test_an_option_that_there_is_not_is_an_error_where_it_stands(wrong: dict[str, str], right: str) -> None:
    with pytest.raises(
        UserError, match=f"unknown option of RMetricCallback '{next(iter(wrong))}'; did you mean '{right}'"
    ):
        RMetricCallback(**wrong)


def test_updates_without_a_pass_that_is_seen_are_told_of_once(
    trainer_of: Callable[..., Trainer], caplog: pytest.LogCaptureFixture
) -> None:
    trainer = trainer_of(RMetricCallback(hardware=False), eval_strategy="no")

    def own(model: Any, inputs: Any, *_: Any) -> Tensor:
        loss: Tensor = model(**inputs).loss
        loss.backward()
        return loss.detach()

    trainer.training_step = own  # type: ignore[method-assign]
    trainer.train()
    (told,) = warnings_of(caplog)
    assert "no backward pass was seen" in told and "calls self.accelerator.backward(loss)" in told


@pytest.mark.parametrize("options", [{}, {"validation_key": "eval_b_loss"}])
def test_evaluations_of_which_none_is_the_validation_loss_are_named_once(
    options: dict[str, str], trainer_of: Callable[..., Trainer], caplog: pytest.LogCaptureFixture
) -> None:
    trainer = trainer_of(RMetricCallback(hardware=False, **options))
    trainer.eval_dataset = {name: tokens(4, seed=seed) for seed, name in enumerate("ab")}
    trainer.train()
    trainer.evaluate()
    told = (
        "evaluations have eval_a_loss, eval_b_loss and no eval_loss, so that there is no validation loss; "
        "choose one of them: RMetricCallback(validation_key='eval_a_loss')"
    )
    assert warnings_of(caplog) == ([] if options else [told])


def test_a_mistake_of_the_user_is_said_at_once(trainer_of: Callable[..., Trainer]) -> None:
    trainer = trainer_of(RMetricCallback(detectors=["r_metrik"]))
    with pytest.raises(UserError, match="did you mean 'r_metric'"):
        trainer.train()
    assert trainer.state.global_step == 0


@pytest.mark.filterwarnings("ignore:You are adding a")
def test_of_two_in_one_trainer_the_second_says_so_and_does_nothing(
    tmp_path: Path, trainer_of: Callable[..., Trainer], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (RMetricCallback(log=tmp_path / f"{name}.jsonl", hardware=False) for name in ("first", "second"))
    trainer = trainer_of(first, second, max_steps=2, save_strategy="steps", save_steps=1)
    for _ in range(2):
        caplog.clear()
        trainer.train()
        assert trainer.state.global_step == 2 and second.monitor is None
        assert [text for text in caplog.messages if "another RMetricCallback watches this training" in text]
    assert [path.name for path in sorted(tmp_path.glob("*.jsonl"))] == ["first-2.jsonl", "first.jsonl"]
    assert read_log(tmp_path / "first.jsonl").last_step == 2
    assert Accelerator.backward is BACKWARD


def test_the_training_is_the_same_with_and_without_the_monitor(trainer_of: Callable[..., Trainer]) -> None:
    weights = []
    for callbacks in ([], [RMetricCallback(hardware=False)]):
        trainer = trainer_of(*callbacks, max_steps=3)
        trainer.train()
        weights.append(torch.cat([weight.detach().flatten() for weight in trainer.model.parameters()]))
    assert torch.equal(*weights)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("transformers", r"^transformers is not installed; pip install 'rmetric\[live\]'$"),
        ("accelerate", "^Accelerate, which the Trainer needs, is not installed; pip install accelerate$"),
    ],
)
def test_a_missing_package_is_named(name: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rmetric.monitor.adapters.huggingface")
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=said):
        __import__("rmetric.monitor.adapters.huggingface")
