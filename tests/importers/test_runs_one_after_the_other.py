"""Where a run ends and the next one begins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.importers.layouts import LOSSES, POINTS, STEPS, loss, read


def test_an_attempt_with_other_batches_is_a_run_of_its_own(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        for total, reports in ((4000, 4), (2000, 30)):
            for report in range(2, 2 + reports):
                yield f"[Epoch 1/9 Batch {10 * report}/{total}] Loss: {loss(report):.4f}"

    assert [len(run.run.observations) for run in read(lines(), tmp_path)] == [4, 30]


def test_batches_that_are_counted_from_0_twice_are_two_runs(tmp_path: Path) -> None:
    lines = (f"Batch {10 * step}/{10 * POINTS} loss {loss(step):.4f}" for _ in range(2) for step in range(POINTS))
    assert [len(run.run.observations) for run in read(lines, tmp_path)] == [POINTS, POINTS]


def test_an_evaluation_behind_the_last_epoch_is_no_run(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        for epoch in STEPS:
            yield f"Epoch {epoch}/{POINTS}"
            yield f"469/469 - 3s - loss: {loss(epoch):.4f} - accuracy: 0.9"
        yield "79/79 - 0s - loss: 1.3000 - accuracy: 0.9"

    (found,) = read(lines(), tmp_path)
    assert found.run.observations["training_loss"] == pytest.approx(LOSSES, abs=1e-3)


def test_fits_that_leave_one_report_an_epoch_are_runs(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        for epochs in (3, 5, 5):
            for epoch in range(1, epochs + 1):
                yield f"Epoch {epoch}/{epochs}"
                yield f"62/62 [==============================] - 9s 100ms/step - loss: {loss(epoch):.4f}"

    assert [len(run.run.observations) for run in read(lines(), tmp_path)] == [3, 5, 5]


@pytest.mark.parametrize(("file", "between"), [("run.log", "  "), ("run.csv", ",")])
def test_a_table_whose_names_come_again_with_the_first_epoch_is_another_run(
    file: str, between: str, tmp_path: Path
) -> None:
    def lines() -> Iterator[str]:
        for epochs in (1, 4):
            yield between.join(["epoch", "train_loss", "valid_loss"])
            yield from (between.join(map(str, (epoch, loss(epoch), loss(epoch) + 0.1))) for epoch in range(epochs))

    found = read(lines(), tmp_path, file)
    assert [run.run.observations.step.tolist() for run in found] == [[0], [0, 1, 2, 3]]


def test_dictionaries_behind_a_closing_one_are_another_run(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        for epochs in (1, 2):
            for step in STEPS:
                yield f"{{'loss': {loss(step):.4f}, 'learning_rate': 4e-05, 'epoch': {epochs * step / POINTS}}}"
            yield f"{{'train_runtime': 30.5, 'train_loss': 2.5, 'epoch': {epochs}.0}}"

    assert [len(run.run.observations) for run in read(lines(), tmp_path)] == [POINTS, POINTS]


def test_where_each_row_closes_a_short_training_rows_are_records(tmp_path: Path) -> None:
    rows = (
        {"epoch": step, "train_runtime": 9.5, "train_loss": loss(step), "eval_loss": loss(step) + 1} for step in STEPS
    )
    (found,) = read((json.dumps(row) for row in rows), tmp_path, "rounds.jsonl")
    assert found.run.observations["training_loss"][1:].tolist() == [*map(loss, STEPS[1:])]


def test_names_that_stand_above_every_few_rows_begin_nothing(tmp_path: Path) -> None:
    lines = (line for step in STEPS for line in (["step,loss"] if step % 5 == 1 else []) + [f"{step},{loss(step)}"])
    (found,) = read(lines, tmp_path, "run.csv")
    assert found.run.observations.step.tolist() == STEPS


def test_a_run_that_was_aborted_early_takes_no_record_from_the_next(tmp_path: Path) -> None:
    lines = (f'{{"epoch": {epoch}, "loss": {loss(epoch)}}}' for count in (9, 2, 20) for epoch in range(1, count + 1))
    assert [len(run.run.observations) for run in read(lines, tmp_path, "run.jsonl")] == [9, 2, 20]


def test_rounds_begin_anew_with_another_run(tmp_path: Path) -> None:
    lines = (f"Rodada {number}, Perda: {loss(number):.4f}" for _ in range(2) for number in STEPS)
    assert [len(run.run.observations) for run in read(lines, tmp_path)] == [POINTS, POINTS]
