"""Going back in the stock Trainers: with copies in memory, and with the checkpoints that the Trainers write."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

from rmetric.monitor.adapters import RMetricCallback
from rmetric.monitor.adapters.hooks import PoliciesOfEachFit
from rmetric.monitor.repair import GoBack, TrainingStopped
from tests.monitor.adapters.reference import small_model, stacked, tokens

STEPS, ONSET, SAVED_EVERY = 110, 75, 10
SETTINGS: dict[str, Any] = {"hindsight": 10, "rest": 5, "keep": 1}


def wreck(model: nn.Module) -> None:
    """Overwrite the weights with others that answer confidently and wrongly."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(2.0 * torch.randn(parameter.shape, generator=generator))


class Wrecks(TrainerCallback):
    """Wrecks the weights before one step, or before every step from then on."""

    def __init__(self, last: int = ONSET) -> None:
        self.steps = range(ONSET, last + 1)

    def on_step_begin(self, args: Any, state: Any, control: Any, *, model: nn.Module, **_: Any) -> None:
        if state.global_step + 1 in self.steps:
            wreck(model)


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., Trainer]:
    def run(policy: GoBack, wrecks: TrainerCallback) -> Trainer:
        callback = RMetricCallback(policy=policy, hardware=False, log=tmp_path / "run.jsonl", announce=False)
        arguments = TrainingArguments(
            output_dir=str(tmp_path / "out"), max_steps=STEPS, per_device_train_batch_size=4, learning_rate=1e-3,
            lr_scheduler_type="constant", logging_steps=1, report_to=[], disable_tqdm=True, use_cpu=True, seed=0,
            save_strategy="steps", save_steps=SAVED_EVERY, save_total_limit=1,
        )  # fmt: skip
        trainer = Trainer(
            small_model(), arguments, data_collator=stacked, train_dataset=tokens(40), callbacks=[callback, wrecks]
        )
        trainer.train()
        return trainer

    return run


def losses(trainer: Trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.slow
@pytest.mark.parametrize("every", [SAVED_EVERY, 0], ids=["in memory", "the Trainer's own"])
def test_trainer_goes_back(train: Callable[..., Trainer], every: int, tmp_path: Path) -> None:
    went_back: list[Any] = []
    trainer = train(GoBack(every=every, on_rollback=went_back.append, **SETTINGS), Wrecks())
    seen = losses(trainer)
    [record] = went_back
    assert max(seen[ONSET - 1 : record.step]) > 2.0 * seen[ONSET - 2]
    assert seen[record.step] < 1.1 * seen[record.details["to_step"] - 1]
    assert trainer.state.global_step == STEPS
    assert record.details["to_step"] <= ONSET - SETTINGS["hindsight"]
    if every == 0:  # it had been rotated out of the Trainer's own, and was kept
        assert not (tmp_path / "out" / f"checkpoint-{record.details['to_step'] - 1}").exists()
        assert 1 <= len(list((tmp_path / "out" / "rmetric_kept").iterdir())) <= 4


@pytest.mark.slow
def test_trainer_is_stopped_where_nothing_helps(train: Callable[..., Trainer]) -> None:
    with pytest.raises(TrainingStopped) as stopped:
        train(GoBack(every=SAVED_EVERY, max_tries=1, **SETTINGS), Wrecks(last=STEPS))
    assert ONSET < stopped.value.step < STEPS


@pytest.mark.slow
@pytest.mark.parametrize("every", [SAVED_EVERY, 0], ids=["in memory", "Lightning's own"])
@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*", "ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:.*exists and is not empty.*", "ignore:.*GPU available but not used.*")
def test_lightning_goes_back(every: int, tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from rmetric.monitor.adapters.lightning import RMetricLightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.seen = small_model(), []

        def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
            if self.global_step + 1 == ONSET:
                wreck(self.model)
            loss: torch.Tensor = self.model(**batch).loss
            self.seen.append(loss.item())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    went_back: list[Any] = []
    policy = GoBack(every=every, on_rollback=went_back.append, **SETTINGS)
    saving = lightning.callbacks.ModelCheckpoint(tmp_path / "out", every_n_train_steps=SAVED_EVERY)
    trainer = lightning.Trainer(
        callbacks=[RMetricLightning(policy=policy, hardware=False, announce=False), saving], max_steps=STEPS,
        accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=str(tmp_path),
    )  # fmt: skip
    module, data = Module(), torch.utils.data.DataLoader(tokens(40), batch_size=4, collate_fn=stacked)  # type: ignore[arg-type, var-annotated]
    trainer.fit(module, data)
    [record] = went_back
    assert max(module.seen[ONSET - 1 : record.step]) > 2.0 * module.seen[ONSET - 2]
    assert module.seen[record.step] < 1.1 * module.seen[record.details["to_step"] - 1]
    assert record.details["to_step"] <= ONSET - SETTINGS["hindsight"]
    if every == 0:
        assert len(list((tmp_path / "out").glob("*.ckpt"))) == 1  # Lightning has kept its last one
        assert 1 <= len(list((tmp_path / "out" / "rmetric_kept").iterdir())) <= 4


def test_policies_of_a_later_fit_call_the_same_functions_and_have_no_history() -> None:
    class Owner:
        def __init__(self) -> None:
            self.lock, self.told = threading.Lock(), []

        def tell(self, record: Any) -> None:
            self.told.append(record)

    owner = Owner()
    policies = PoliciesOfEachFit(GoBack(every=5, on_rollback=owner.tell))
    (first,) = policies.take()
    small = torch.nn.Linear(2, 1)
    first.attach(small, torch.optim.SGD(small.parameters(), lr=0.1))
    (second,) = policies.take()
    assert isinstance(first, GoBack) and isinstance(second, GoBack)
    assert first.load is not None and second.load is None
    assert second.on_rollback is not None
    second.on_rollback("record")  # type: ignore[arg-type]
    assert owner.told == ["record"]
