"""Folders of TensorBoard's event files: which of them are one run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rmetric.importers import runs_of
from tests.importers.event_files import event_file

Losses = list[tuple[str, int, float]]


def losses(first: float, tag: str = "loss") -> Losses:
    return [(tag, step, first - step / 64) for step in range(20)]


def found_in(folder: Path) -> dict[str, tuple[float, list[float]]]:
    """Name of each run → its first training loss, and its first validation loss, if it has one."""
    runs = [logged.run for logged in runs_of(folder)]
    return {run.name: (run.observations["training_loss"][0], run.evaluations()[1][:1].tolist()) for run in runs}


def test_two_writers_in_one_folder_are_one_run(tmp_path: Path) -> None:
    event_file(tmp_path / "events.out.tfevents.1.a", losses(3.0, "train/loss"))
    event_file(tmp_path / "events.out.tfevents.1.b", losses(3.5, "val/loss")[::5])
    (logged,) = runs_of(tmp_path)
    assert logged.run.evaluations()[0].tolist() == [0, 5, 10, 15] and not logged.notes


def test_two_runs_at_the_same_time_in_one_folder_stay_apart(tmp_path: Path) -> None:
    event_file(tmp_path / "events.out.tfevents.1.a", losses(3.0))
    event_file(tmp_path / "events.out.tfevents.1.b", losses(4.0), begin=0.5)
    assert [*found_in(tmp_path).values()] == [(3.0, []), (4.0, [])]


def test_a_resumed_run_with_two_writers(tmp_path: Path) -> None:
    for part, steps in enumerate((range(30), range(20, 60))):
        begin = 1000.0 * part
        train = [("loss", step, 3.0 + part - step / 64) for step in steps]
        event_file(tmp_path / "run" / "train" / f"events.out.tfevents.{part}", train, begin)
        validation = [("loss", step, 4.0 + part) for step in steps[4::5]]
        event_file(tmp_path / "run" / "validation" / f"events.out.tfevents.{part}", validation, begin + 4)
    first, second = (logged.run for logged in runs_of(tmp_path))
    assert [first.name, second.name] == ["run", "run-2"]
    assert first.evaluations()[0].tolist() == [*range(4, 30, 5)]
    assert second.evaluations()[0].tolist() == [*range(24, 60, 5)]
    assert {*second.evaluations()[1]} == {5.0}


@pytest.mark.parametrize(
    ("folders", "runs"),
    [
        ({"run/train": 3.0, "run/val": 3.5, "run/test": 4.0}, {"run": (3.0, [3.5])}),
        ({"run/train": 3.0, "run/test": 4.0}, {"run": (3.0, [4.0])}),
        ({"a_train": 3.0, "a_val": 3.5, "b_train": 4.0, "b_val": 4.5}, {"a": (3.0, [3.5]), "b": (4.0, [4.5])}),
        ({"test": 3.0, "first": 4.0}, {"first": (4.0, []), "test": (3.0, [])}),
        ({"gpt_train": 3.0, "bert_val": 4.0}, {"bert_val": (4.0, []), "gpt_train": (3.0, [])}),
    ],
)
def test_folders_of_data_side_by_side(
    folders: dict[str, float], runs: dict[str, tuple[float, list[float]]], tmp_path: Path
) -> None:
    for folder, first in folders.items():
        event_file(tmp_path / folder / "events.out.tfevents.1", losses(first))
    assert found_in(tmp_path) == runs


@pytest.mark.parametrize("names", [("train", "val"), ("train_loss", "val_loss")])
def test_pytorch_s_add_scalars(names: Sequence[str], tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    with tensorboard.SummaryWriter(str(tmp_path / "run")) as writer:
        for step in range(20):
            writer.add_scalar("lr", 0.5, step)
            writer.add_scalars("Loss", dict(zip(names, (3 - step / 64, 3.5 - step / 64), strict=True)), step)
            writer.add_scalars("Accuracy", {"train": 0.5, "val": 0.25}, step)
    assert found_in(tmp_path / "run") == {"run": (3.0, [3.5])}
    (logged,) = runs_of(tmp_path)
    assert logged.run.observations["learning_rate"].tolist() == [0.5] * 20


def test_results_beside_hyperparameters_are_no_run(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    with tensorboard.SummaryWriter(str(tmp_path / "run")) as writer:
        for step in range(20):
            writer.add_scalar("loss", 3 - step / 64, step)
        writer.add_hparams({"lr": 0.5}, {"hparam/loss": 2.5})
    assert found_in(tmp_path) == {"run": (3.0, [])}
