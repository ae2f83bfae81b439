"""Tests of the callback in a real Lightning Trainer, in both packages that Lightning comes in."""

from __future__ import annotations

import csv
import importlib
import logging
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from rmetric.errors import UserError
from rmetric.log_reader import read_log
from rmetric.monitor.remarks import WORDS
from rmetric.monitor.repair import GoBack
from tests.helpers import lines_of
from tests.monitor.adapters.reference import (
    CLIP,
    LEARNING_RATE,
    VOCABULARY,
    small_model,
    stacked,
    tokens,
    train,
    without_times,
)

pytestmark = pytest.mark.filterwarnings(  # Lightning's own advice, some of it on some machines only
    "ignore:.*isinstance.treespec, LeafSpec.*",
    "ignore:.*does not have many workers.*",
    "ignore:.*GPU available but not used.*",
    "ignore:.*exists and is not empty.*",
    "ignore:.*training_step. returned .None.*",
    "ignore:.*your dataloader is not resumable.*",
)
ACCUMULATED = 3
STEPS = 8

pytest.importorskip("lightning")
RMetricLightning: Any = pytest.importorskip("rmetric.monitor.adapters.lightning").RMetricLightning


def batches(rows: int, seed: int = 0) -> DataLoader[Any]:
    return DataLoader(tokens(rows, seed), batch_size=2, collate_fn=stacked)  # type: ignore[arg-type]


def module_of(package: Any) -> Any:
    class Module(package.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = small_model()
            self.before_step: Callable[[int], Any] = lambda step: None
            self.skipped = -1

        def training_step(self, batch: dict[str, Tensor], index: int) -> Tensor | None:
            self.before_step(self.global_step + 1)
            return None if index == self.skipped else self.model(**batch).loss

        def validation_step(self, batch: dict[str, Tensor], index: int) -> None:
            self.log("val_loss", self.model(**batch).loss)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=LEARNING_RATE, weight_decay=0.0)

    return Module()


@pytest.fixture(params=["lightning.pytorch", "pytorch_lightning"])
def package(request: pytest.FixtureRequest) -> Any:
    """Lightning, under either name."""
    logging.getLogger(request.param).setLevel(logging.ERROR)
    return pytest.importorskip(request.param)


def trainer_of(package: Any, folder: Path, *callbacks: Any, **options: Any) -> Any:
    """A Trainer with accumulation, clipping and an evaluation every second step."""
    settings = {
        "max_steps": STEPS, "accumulate_grad_batches": ACCUMULATED, "gradient_clip_val": CLIP, "accelerator": "cpu",
        "devices": 1, "logger": False, "enable_progress_bar": False, "enable_model_summary": False,
        "enable_checkpointing": False, "num_sanity_val_steps": 1, "val_check_interval": 2 * ACCUMULATED,
        "default_root_dir": str(folder),
    }  # fmt: skip
    return package.Trainer(callbacks=list(callbacks), **{**settings, **options})


def fit(trainer: Any, module: Any, **options: Any) -> None:
    trainer.fit(module, batches(2 * STEPS * ACCUMULATED), batches(4, seed=1), **options)


def test_every_micro_batch_is_seen_and_nothing_is_clipped(package: Any, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    callback = RMetricLightning(log=log, hardware=False, vocabulary=VOCABULARY)
    trainer = trainer_of(package, tmp_path, callback)
    fit(trainer, module_of(package))
    expected = train(small_model(), list(batches(2 * STEPS * ACCUMULATED)), ACCUMULATED)
    run = read_log(log)
    seen = run.observations
    assert seen.step.tolist() == list(range(1, STEPS + 1))
    np.testing.assert_allclose(seen["grad_norm"], expected.grad_norm, rtol=1e-4)
    np.testing.assert_allclose(seen["training_loss"], expected.loss, rtol=1e-5)
    np.testing.assert_allclose(seen["sigma_sq"][1:], expected.sigma_sq[1:], rtol=1e-2)
    assert min(expected.grad_norm) > 3 * CLIP
    steps, losses = run.evaluations()
    assert steps.tolist() == [2, 4, 6, 8]  # the sanity check does not count
    assert losses[-1] == pytest.approx(trainer.callback_metrics["val_loss"].item(), rel=1e-6)
    assert run.terminal == {"event": "EXPERIMENT_SUCCESS", "step": STEPS}


def test_an_evaluation_under_another_name_is_told_of_once(
    package: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module = module_of(package)
    module.validation_step = lambda *_: module.log_dict({"val/acc": 0.5, "val/ce": 1.5})
    fit(trainer_of(package, tmp_path, RMetricLightning(log=tmp_path / "run.jsonl", hardware=False)), module)
    (told,) = [record.getMessage() for record in caplog.records if "no val_loss" in record.getMessage()]
    assert told.endswith("choose one of them: RMetricLightning(validation_key='val/ce')")


def test_a_reward_that_is_logged_is_that_of_the_next_record_and_of_no_other(package: Any, tmp_path: Path) -> None:
    module = module_of(package)
    module.before_step = lambda step: module.log("reward", 0.5) if step % 3 else None
    callback = RMetricLightning(log=tmp_path / "run.jsonl", hardware=False)
    fit(trainer_of(package, tmp_path, callback, accumulate_grad_batches=1), module)
    rewards = read_log(tmp_path / "run.jsonl").observations["reward"]
    assert np.isfinite(rewards).tolist() == [step % 3 != 0 for step in range(STEPS)]
    assert np.nanmax(rewards) == np.nanmin(rewards) == 0.5


def test_a_resumed_training_writes_the_log_of_one_never_interrupted(package: Any, tmp_path: Path) -> None:
    """Two epochs of four steps, the second one resumed: in the middle of one Lightning would deal the data anew."""
    whole, log = tmp_path / "whole.jsonl", tmp_path / "run.jsonl"

    def fitted(path: Path, stop_at: int = 0, ckpt_path: str | None = None) -> None:
        def stop(step: int) -> None:
            if step == stop_at:
                raise RuntimeError("out of luck")

        module = module_of(package)
        module.before_step = stop
        saving = package.callbacks.ModelCheckpoint(tmp_path / path.stem, save_on_train_epoch_end=True, save_top_k=-1)
        options = {"enable_checkpointing": True, "max_epochs": 2, "max_steps": -1, "val_check_interval": 1.0}
        trainer = trainer_of(package, tmp_path, RMetricLightning(log=path, hardware=False), saving, **options)
        trainer.fit(module, batches(STEPS * ACCUMULATED), batches(4, seed=1), ckpt_path=ckpt_path)

    fitted(whole)
    with pytest.raises(RuntimeError, match="out of luck"):
        fitted(log, stop_at=7)
    left = read_log(log)
    assert left.terminal is None
    assert left.last_step == 6
    (saved,) = (tmp_path / "run").glob("epoch=0-*.ckpt")
    fitted(log, ckpt_path=str(saved))
    again, expected = (without_times(lines_of(path.read_bytes())) for path in (log, whole))
    assert again == expected
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["run.jsonl", "whole.jsonl"]


@pytest.mark.parametrize("ends", ["at the end", "by an exception"])
def test_a_checkpoint_that_is_written_when_the_training_has_ended_has_the_state(
    package: Any, ends: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, log = tmp_path / "saved.ckpt", tmp_path / "run.jsonl"

    class Saves(package.Callback):
        def on_exception(self, trainer: Any, *_: Any) -> None:
            trainer.save_checkpoint(file)

    def stop(step: int) -> None:
        if step == STEPS:
            raise RuntimeError("out of luck")

    module = module_of(package)
    module.before_step = stop
    fails = ends == "by an exception"
    callbacks = RMetricLightning(log=log, hardware=False), Saves()
    trainer = trainer_of(package, tmp_path, *callbacks, max_steps=STEPS if fails else STEPS - 1)
    if fails:
        with pytest.raises(RuntimeError, match="out of luck"):
            fit(trainer, module)
    else:
        fit(trainer, module)
        trainer.save_checkpoint(file)
    assert len(read_log(log).observations.step) == STEPS - 1
    fit(trainer_of(package, tmp_path, RMetricLightning(log=log, hardware=False)), module_of(package), ckpt_path=file)
    assert read_log(log).observations.step.tolist() == list(range(1, STEPS + 1))
    assert "without a state of the monitor" not in caplog.text


def test_a_training_that_goes_on_without_a_state_says_so(
    package: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = trainer_of(package, tmp_path, max_steps=2)
    fit(trainer, module_of(package))
    trainer.save_checkpoint(tmp_path / "saved.ckpt")
    callback = RMetricLightning(hardware=False)
    fit(trainer_of(package, tmp_path, callback), module_of(package), ckpt_path=tmp_path / "saved.ckpt")
    assert "the training goes on after step 2 without a state of the monitor; its baselines begin anew" in caplog.text


def test_the_batches_of_a_module_that_is_not_called_itself_are_looked_at(package: Any, tmp_path: Path) -> None:
    callback = RMetricLightning(hardware=False)
    seen: list[Any] = []
    module = module_of(package)
    module.before_step = lambda step: seen.append(callback.monitor._run.measurer._batches.shape)
    fit(trainer_of(package, tmp_path, callback, max_steps=2), module)
    assert len(seen[-1]) == 2  # input_ids and labels, with which the part is called


def test_a_step_that_the_module_skips_is_no_step(package: Any, tmp_path: Path) -> None:
    module = module_of(package)
    module.skipped = 1
    log = tmp_path / "run.jsonl"
    callback = RMetricLightning(log=log, hardware=False)
    fit(trainer_of(package, tmp_path, callback, accumulate_grad_batches=1, max_steps=3, val_check_interval=1.0), module)
    run = read_log(log)
    assert run.terminal["event"] == "EXPERIMENT_SUCCESS"
    assert run.observations.step.tolist() == [1, 2]


def test_ctrl_c_leaves_a_valid_incomplete_log(package: Any, tmp_path: Path) -> None:
    module = module_of(package)

    def stop(step: int) -> None:
        if step == 4:
            raise KeyboardInterrupt

    module.before_step = stop
    log = tmp_path / "run.jsonl"
    with pytest.raises((SystemExit, KeyboardInterrupt)):
        fit(trainer_of(package, tmp_path, RMetricLightning(log=log, hardware=False)), module)
    run = read_log(log)
    assert run.terminal is None
    assert run.observations.step.tolist() == [1, 2, 3]


@pytest.mark.parametrize("sync", [True, False])
def test_a_veto_skips_the_update(sync: bool, tmp_path: Path) -> None:
    """A module's own hook, which comes after those of callbacks, finds the gradients all the same."""
    package = importlib.import_module("lightning.pytorch")
    module, found = module_of(package), []
    module.on_before_optimizer_step = lambda _: found.append(module.model.model.norm.weight.grad.norm().item())
    module.model.model.norm.weight.register_hook(
        lambda gradient: gradient * math.nan if module.global_step + 1 == 3 else gradient
    )
    callback = RMetricLightning(hardware=False, sync=sync)
    fit(trainer_of(package, tmp_path, callback, gradient_clip_val=None, max_steps=5), module)
    assert all(bool(weight.isfinite().all()) for weight in module.parameters()) is sync
    assert callback.monitor.alerts["numerics"] == 3
    assert math.isnan(found[2]) and len(found) == 5


def test_a_closure_that_is_evaluated_several_times_is_one_step(package: Any, tmp_path: Path) -> None:
    log, module = tmp_path / "run.jsonl", module_of(package)
    module.configure_optimizers = lambda: torch.optim.LBFGS(module.parameters(), lr=0.01, max_iter=3)
    evaluations: list[int] = []
    module.before_step = evaluations.append
    callback = RMetricLightning(log=log, hardware=False, announce=False)
    fit(trainer_of(package, tmp_path, callback, accumulate_grad_batches=1, gradient_clip_val=None), module)
    assert len(evaluations) > 2 * STEPS
    seen = read_log(log).observations
    assert seen.step.tolist() == list(range(1, STEPS + 1))
    assert min(seen["update_rms"][1:]) > 0.0
    assert lines_of(log.read_bytes())[-1]["step"] == STEPS


def test_a_veto_holds_for_each_evaluation_of_a_closure(tmp_path: Path) -> None:
    package = importlib.import_module("lightning.pytorch")

    class EvaluatesTwice(torch.optim.SGD):
        """Takes the gradients of the second evaluation."""

        def step(self, closure: Any = None) -> Any:
            closure()
            return super().step(closure)

    module = module_of(package)
    module.configure_optimizers = lambda: EvaluatesTwice(module.parameters(), lr=0.01)
    module.model.model.norm.weight.register_hook(
        lambda gradient: gradient * math.nan if module.global_step == 2 else gradient
    )
    callback = RMetricLightning(hardware=False, sync=True)
    options = {"accumulate_grad_batches": 1, "gradient_clip_val": None, "max_steps": 5, "val_check_interval": 1.0}
    fit(trainer_of(package, tmp_path, callback, **options), module)
    assert all(bool(weight.isfinite().all()) for weight in module.parameters())
    assert callback.monitor.alerts["numerics"] == 3


def test_every_logger_gets_the_numbers_and_an_alert_at_once(package: Any, tmp_path: Path) -> None:
    loggers = [package.loggers.CSVLogger(tmp_path, name="csv"), package.loggers.TensorBoardLogger(tmp_path, name="tb")]
    module = module_of(package)
    module.model.model.norm.weight.register_hook(
        lambda gradient: gradient * math.nan if module.global_step + 1 == 5 else gradient
    )
    callback = RMetricLightning(hardware=False, announce=False)
    fit(trainer_of(package, tmp_path, callback, logger=loggers, log_every_n_steps=4, gradient_clip_val=None), module)
    rows = list(csv.DictReader((tmp_path / "csv" / "version_0" / "metrics.csv").read_text().splitlines()))
    alerts = {int(row["step"]): float(row["rmetric/alerts"]) for row in rows if row["rmetric/alerts"]}
    assert alerts == {3: 0.0, 5: 1.0, 7: 1.0}  # from 0; an alert of step 5 is known in step 6
    steps = {int(row["step"]): float(row["rmetric/step"]) for row in rows if row["rmetric/step"]}
    assert steps == {3: 3.0, 5: 5.0, 7: 8.0}  # the last one when the training ends
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    read = events.EventAccumulator(str(tmp_path / "tb" / "version_0"))
    read.Reload()
    assert {point.step: point.value for point in read.Scalars("rmetric/alerts")} == alerts


def test_scaled_losses_and_gradients_are_unscaled(tmp_path: Path) -> None:
    """FP16 on the CPU, with the scaler that a GPU would have."""
    package = importlib.import_module("lightning.pytorch")
    plugin = importlib.import_module("lightning.pytorch.plugins.precision").MixedPrecision

    class ScaledOnly(plugin):
        """A scaler without autocast, so that the numbers can be compared."""

        def autocast_context_manager(self) -> Any:
            return torch.autocast("cpu", enabled=False)

    precision = ScaledOnly("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=2.0**16))
    log = tmp_path / "run.jsonl"
    fit(
        trainer_of(package, tmp_path, RMetricLightning(log=log, hardware=False), plugins=[precision]),
        module_of(package),
    )
    expected = train(small_model(), list(batches(2 * STEPS * ACCUMULATED)), ACCUMULATED)
    seen = read_log(log).observations
    np.testing.assert_allclose(seen["training_loss"], expected.loss, rtol=1e-3)
    np.testing.assert_allclose(seen["grad_norm"], expected.grad_norm, rtol=1e-3)


def test_a_monitor_that_cannot_start_does_not_stop_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr("rmetric.monitor.adapters.lightning.TrainingMonitor", fail)
    package, callback = importlib.import_module("lightning.pytorch"), RMetricLightning()
    trainer = trainer_of(package, tmp_path, callback, max_steps=2)
    with caplog.at_level(logging.WARNING, logger="rmetric"):
        fit(trainer, module_of(package))
    assert trainer.global_step == 2
    assert callback.state_dict() == {}
    assert "the monitor's start failed, training goes on: RuntimeError: no luck" in caplog.messages


@pytest.mark.parametrize(
    ("wrong", "right"), [({"logs": "run.jsonl"}, "log"), ({"validation_keys": "loss"}, "validation_key")]
)
def test_an_option_that_there_is_not_is_an_error_where_it_stands(wrong: dict[str, str], right: str) -> None:
    with pytest.raises(
        UserError, match=f"unknown option of RMetricLightning '{next(iter(wrong))}'; did you mean '{right}'"
    ):
        RMetricLightning(**wrong)


def test_a_mistake_of_the_user_is_said_at_once(tmp_path: Path) -> None:
    package = importlib.import_module("lightning.pytorch")
    trainer = trainer_of(package, tmp_path, RMetricLightning(detectors=["r_metrik"]))
    with pytest.raises(UserError, match="did you mean 'r_metric'"):
        fit(trainer, module_of(package))


def test_two_in_one_trainer_are_refused_before_the_training(package: Any, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="more than one stateful callback of type `RMetricLightning`"):
        trainer_of(package, tmp_path, RMetricLightning(), RMetricLightning())


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rmetric.monitor.adapters.lightning")
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=r"^Lightning is not installed; pip install lightning$"):
        __import__("rmetric.monitor.adapters.lightning")


@pytest.mark.parametrize("save_last", [False, True])
def test_each_checkpoint_of_each_fit_is_offered_and_every_fit_is_reported(
    save_last: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = importlib.import_module("lightning.pytorch")
    offered: list[str] = []
    monkeypatch.setattr(GoBack, "offer", lambda policy, kept: offered.append(kept.name))
    callback = RMetricLightning(policy=GoBack(every=0), hardware=False, announce=False)
    for number in (1, 2):
        logger = package.loggers.CSVLogger(tmp_path, name=f"fit{number}")
        every = {"every_n_train_steps": 2, "save_top_k": 1, "save_last": save_last}
        saving = package.callbacks.ModelCheckpoint(tmp_path / f"out{number}", **every)
        options = {"logger": logger, "log_every_n_steps": 2, "enable_checkpointing": True}
        fit(trainer_of(package, tmp_path, callback, saving, **options), module_of(package))
        assert len(offered) == len({*offered}) == (STEPS - 1) // 2
        rows = list(csv.DictReader((Path(logger.log_dir) / "metrics.csv").read_text().splitlines()))
        assert sum(bool(row["rmetric/step"]) for row in rows) >= STEPS // 2
        offered.clear()


def by_hand(package: Any, step: Callable[[Any, Tensor], None]) -> Any:
    """A module of two networks that makes its passes and updates itself."""

    class Module(package.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.automatic_optimization = False
            self.generator, self.critic = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
            self.losses: list[float] = []
            self.norms: list[float] = []

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(part.parameters(), lr=0.01) for part in (self.generator, self.critic)]

        def training_step(self, batch: Any, index: int) -> None:
            step(self, batch)

    return Module()


def fit_by_hand(
    package: Any, folder: Path, module: Any, *, rows: int = 40, log: Path | None = None, **options: Any
) -> Any:
    """A trainer that has fitted such a module to some rows, watched."""
    settings = {"accumulate_grad_batches": 1, "gradient_clip_val": None, "max_steps": 100, "max_epochs": 1, **options}
    trainer = trainer_of(package, folder, RMetricLightning(log=log, hardware=False), **settings)
    trainer.fit(module, DataLoader(torch.randn(rows, 4), batch_size=4))  # type: ignore[arg-type]
    return trainer


def two_networks(module: Any, batch: Tensor) -> None:
    of_generator, of_critic = module.optimizers()
    loss = (module.critic(module.generator(batch)).mean() - 1.0).square()
    module.manual_backward(loss)
    of_generator.step()
    module.losses.append(loss.item())
    of_critic.zero_grad()
    module.manual_backward(1000.0 + module.critic(batch).mean().square())
    of_critic.step()
    of_generator.zero_grad()


def two_terms(module: Any, batch: Tensor, shape: tuple[int, ...] = ()) -> None:
    """The second one is of a shape."""
    optimizer, _ = module.optimizers()
    optimizer.zero_grad()
    terms = [module.generator(half).square().mean() / 2.0 for half in batch.chunk(2)]
    module.manual_backward(terms[0])
    module.manual_backward(terms[1].reshape(shape))
    optimizer.step()
    module.losses.append(sum(term.item() for term in terms))


def two_shapes(module: Any, batch: Tensor) -> None:
    two_terms(module, batch, shape=(1,))


@pytest.mark.parametrize("step", [two_networks, two_terms, two_shapes])
def test_in_a_loop_by_hand_the_loss_is_what_the_first_optimizer_descends(
    package: Any, tmp_path: Path, step: Callable[[Any, Tensor], None]
) -> None:
    module, log = by_hand(package, step), tmp_path / "run.jsonl"
    fit_by_hand(package, tmp_path, module, rows=24, log=log, max_epochs=2)
    np.testing.assert_allclose(read_log(log).observations["training_loss"], module.losses, rtol=1e-6)


def critic_first(module: Any, batch: Tensor) -> None:
    of_generator, of_critic = module.optimizers()
    made = module.generator(batch)
    of_critic.zero_grad()
    module.manual_backward(module.critic(batch).mean() - module.critic(made.detach()).mean())
    of_critic.step()
    of_generator.zero_grad()
    module.manual_backward(module.critic(made).mean())
    module.norms.append(float(torch.nn.utils.get_total_norm([p.grad for p in module.generator.parameters()])))
    of_generator.step()


def test_of_several_networks_only_that_of_the_first_optimizer_is_measured(package: Any, tmp_path: Path) -> None:
    module, log = by_hand(package, critic_first), tmp_path / "run.jsonl"
    fit_by_hand(package, tmp_path, module, log=log, max_epochs=2)
    lines = lines_of(log.read_bytes())
    np.testing.assert_allclose(read_log(log).observations["grad_norm"], module.norms, rtol=1e-5)
    assert {line["source"] for line in lines if line.get("signal") == "sigma_sq"} == {"window"}


def clips_twice(module: Any, batch: Tensor) -> None:
    """Clips both networks, one of them twice, and updates the one that is not watched first."""
    of_generator, of_critic = module.optimizers()
    module.manual_backward(module.critic(module.generator(batch)).square().mean())
    module.norms.append(float(torch.nn.utils.get_total_norm([p.grad for p in module.generator.parameters()])))
    for optimizer, limit in ((of_critic, 0.01), (of_generator, 0.01), (of_generator, 0.001)):
        module.clip_gradients(optimizer, gradient_clip_val=limit, gradient_clip_algorithm="norm")
    for optimizer in (of_critic, of_generator):
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("clip", [None, 0.1])
def test_a_constant_gradient_norm_of_the_trainers_own_loop_is_no_clipping(
    package: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, clip: float | None
) -> None:
    module = by_hand(package, lambda module, batch: None)
    module.automatic_optimization = True
    module.training_step = lambda batch, batch_idx: module.generator.weight.sum() + 9.0 + batch_idx
    module.configure_optimizers = lambda: torch.optim.SGD(module.generator.parameters(), lr=0.01)
    fit_by_hand(package, tmp_path, module, rows=60, gradient_clip_val=clip)
    assert WORDS["clipped"] not in caplog.messages


def test_clipping_between_the_passes_of_an_update_makes_no_record(package: Any, tmp_path: Path) -> None:
    def step(module: Any, batch: Tensor) -> None:
        optimizer, _ = module.optimizers()
        terms = [module.generator(part).square().mean() for part in batch.chunk(2)]
        for term in terms:
            module.manual_backward(term)
            module.clip_gradients(optimizer, gradient_clip_val=0.01, gradient_clip_algorithm="norm")
        module.losses.append(sum(term.item() for term in terms))
        optimizer.step()
        optimizer.zero_grad()

    module, log = by_hand(package, step), tmp_path / "run.jsonl"
    fit_by_hand(package, tmp_path, module, log=log)
    losses = read_log(log).observations["training_loss"]
    assert len(losses) == 10
    np.testing.assert_allclose(losses[1:], module.losses[1:], rtol=1e-5)


def clips_by_hand(module: Any, batch: Tensor) -> None:
    optimizer, _ = module.optimizers()
    optimizer.zero_grad()
    module.manual_backward(module.generator(batch).square().mean())
    torch.nn.utils.clip_grad_norm_(module.generator.parameters(), 1e-3)
    module.norms.append(1e-3)
    optimizer.step()


@pytest.mark.parametrize("step", [clips_twice, clips_by_hand])
def test_clipping_by_hand_comes_after_the_monitor_or_is_told_of(
    package: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, step: Callable[[Any, Tensor], None]
) -> None:
    module, log = by_hand(package, step), tmp_path / "run.jsonl"
    trainer = fit_by_hand(package, tmp_path, module, rows=60, log=log)
    np.testing.assert_allclose(read_log(log).observations["grad_norm"], module.norms, rtol=1e-4)
    assert (WORDS["clipped"] in caplog.messages) is (step is clips_by_hand)
    assert not {"clip_gradients", "_after_closure"} & {*vars(trainer.precision_plugin)}


def test_updates_by_hand_without_a_pass_that_is_seen_are_told_of_once(
    package: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def plain(module: Any, batch: Tensor) -> None:
        optimizer, _ = module.optimizers()
        module.generator(batch).square().mean().backward()
        optimizer.step()

    fit_by_hand(package, tmp_path, by_hand(package, plain), rows=24, max_steps=-1)
    (told,) = [message for message in caplog.messages if "no backward pass was seen" in message]
    assert "call self.manual_backward(loss)" in told
