"""Words of data before a report that tell no data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rmetric.importers import runs_of
from tests.importers.layouts import log

PREFIXES = (
    "2023-05-01 12:00:{0:02d} - test - INFO - ",
    "2023-05-01 12:00:{0:02d}\tmi-test\tINFO\t",
    "[2023-05-01 12:00:{0:02d}][unit_test.trainer][INFO] - ",
    "INFO:test:",
    "INFO my_test/train_val.py:{0} ",
    "May 01 10:00:{0:02d} gpu-dev-01 train[123]: ",
    "[exp=val_on_noise] ",
    "dev@box ~ 10:00:{0:02d} ",
)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_word_of_data_before_all_reports_tells_no_data(prefix: str, tmp_path: Path) -> None:
    lines = []
    for step in range(1, 31):
        lines += [prefix.format(step) + f"step {step} loss: {4.0 - step / 100:.2f}"]
        lines += [prefix.format(step) + f"val | step {step} loss: {5.0 - step / 100:.2f}"]
    (logged,) = runs_of(log(tmp_path, *lines))
    observations = logged.run.observations
    assert observations["training_loss"].tolist() == [round(4.0 - step / 100, 2) for step in range(1, 31)]
    assert np.isfinite(observations["validation_loss"]).sum() >= 29


def test_epochs_in_the_messages_of_a_compound_name_are_trained(tmp_path: Path) -> None:
    (logged,) = runs_of(log(tmp_path, *(f"my-test - INFO - Epoch {epoch} loss: {4 - epoch}" for epoch in range(3))))
    assert logged.run.observations["training_loss"].tolist() == [4, 3, 2]


@pytest.mark.parametrize(
    "begin",
    [
        "Test: [{0}/30] ",
        "Test: epoch 0 lr 0.1 [{0}/30] ",
        "[val] step {0} ",
        "step {0} val | ",
        "test.py:{0} Eval: step {0} ",
        "[eval.py:120] INFO: batch {0}/30 ",
        "- test - INFO - batch {0} ",
        "| INFO | fairseq_cli.validate | step {0} ",
        "test-clean: batch {0}/30 ",
        "[Round {0}] test_clients 100 ",
        "Epoch {0} | test_set: ",
        "{{'step': {0}, 'lr': 0.1, 'val': ",
    ],
)
def test_a_log_of_nothing_but_evaluations_stays_one(begin: str, tmp_path: Path) -> None:
    end = ", 'train': {'loss': 2.5}}" if "lr" in begin else ""
    lines = (f"{begin.format(step)}loss {4.0 - step / 100:.2f}{end}" for step in range(1, 31))
    (logged,) = runs_of(log(tmp_path, *lines))
    assert not np.isfinite(logged.run.observations["training_loss"]).any()


@pytest.mark.parametrize(
    "line",
    [
        "{{'epoch': {0}, 'train_mse': {1}, 'val_mse': {2}}}",
        "epoch {0}, lr=0.1, rmse(train)={1}, rmse(val)={2}",
        "step {0} {{'train/bpb': {1}, 'val/bpb': {2}}}",
        "[{0}]\tcv_agg's train rmse: {1} + 0.1\tcv_agg's valid rmse: {2} + 0.1",
    ],
)
def test_a_word_in_the_name_of_an_evaluation_tells_its_data(line: str, tmp_path: Path) -> None:
    lines = (line.format(step, 4.0 - step / 100, 5.0 - step / 100) for step in range(30))
    (logged,) = runs_of(log(tmp_path, *lines))
    observations = logged.run.observations
    assert observations["training_loss"].max() == 4.0 and np.nanmax(observations["validation_loss"]) == 5.0


def test_a_source_file_that_only_evaluations_are_of_tells_that(tmp_path: Path) -> None:
    told = {"train.py:31": 4.0, "test.py:88": 5.0}
    lines = [
        f"INFO {file} Epoch {epoch} loss {to - epoch / 100:.2f}" for epoch in range(30) for file, to in told.items()
    ]
    (logged,) = runs_of(log(tmp_path, *lines))
    assert logged.run.observations["training_loss"].max() == 4.0
