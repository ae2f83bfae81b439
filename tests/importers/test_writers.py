"""Logs that the packages themselves write."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import rmetric


def test_pytorch_s_summary_writer(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    for run in ("a", "b"):
        with tensorboard.SummaryWriter(str(tmp_path / run)) as writer:
            for step in range(20):
                writer.add_scalar("Loss/train", 3 - step / 10, step)
                writer.add_histogram("weights", np.array([0.1, 0.2]), step)
                if step % 5 == 4:
                    writer.add_scalar("Loss/valid", math.nan if step == 9 else 3.1 - step / 10, step)
    runs = rmetric.read_runs(tmp_path)
    assert [run.name for run in runs] == ["a", "b"]
    assert runs[0].observations["training_loss"] == pytest.approx([3 - step / 10 for step in range(20)])
    assert runs[0].evaluations()[1] == pytest.approx([2.7, math.inf, 1.7, 1.2])


def test_training_and_validation_in_folders_side_by_side_are_one_run(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    for folder, first in (("train", 3.0), ("validation", 3.5)):
        with tensorboard.SummaryWriter(str(tmp_path / "run" / folder)) as writer:
            for epoch in range(10):
                writer.add_scalar("epoch_loss", first - epoch / 10, epoch)
    run = rmetric.read_run(tmp_path)
    assert run.name == "run"
    assert run.observations["training_loss"][[0, -1]] == pytest.approx([3.0, 2.1])
    assert run.evaluations()[1] == pytest.approx([3.5 - epoch / 10 for epoch in range(10)])


@pytest.mark.slow
def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(
        mode="offline", dir=str(tmp_path), project="p", settings=wandb.Settings(x_disable_stats=True)
    ) as run:
        for step in range(30):
            layers = [1.0, math.nan if step > 20 else 2.0]
            run.log({"train/loss": 3 - step / 20, "lr": 1e-3, "note": "x" * 3000, "layers": layers}, step=step)
            if step % 10 == 9:
                run.log({"eval/loss": math.nan if step == 19 else 3.1 - step / 20}, step=step)
    wandb.teardown()  # its own process may still be writing the last record
    found = rmetric.read_run(tmp_path)
    assert found.observations["training_loss"] == pytest.approx([3 - step / 20 for step in range(30)])
    assert found.evaluations()[0].tolist() == [9, 19, 29]
    assert found.evaluations()[1] == pytest.approx([2.65, math.inf, 1.65])


@pytest.mark.slow
def test_lightning_s_table(tmp_path: Path) -> None:
    logging = pytest.importorskip("lightning.pytorch.loggers")
    logger = logging.CSVLogger(tmp_path)
    for step in range(30):
        logger.log_metrics({"train_loss_step": 3 - step / 20}, step)
        if step % 10 == 9:
            logger.log_metrics({"val_loss": 3.1 - step / 20, "epoch": step // 10}, step)
            logger.log_metrics({"train_loss_epoch": 2.0}, step)
    logger.save()
    run = rmetric.read_run(Path(logger.log_dir) / "metrics.csv")
    assert run.observations["training_loss"] == pytest.approx([3 - step / 20 for step in range(30)])
    assert run.evaluations()[0].tolist() == [9, 19, 29]
