"""Console output, line by line: rows of tables, and processes that write in turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmetric.importers import runs_of
from rmetric.importers.console import WORKERS
from rmetric.importers.pairs import LEVELS
from tests.importers.layouts import POINTS, STEPS, log, loss, read


def test_a_group_within_a_table_of_two_cells_begins_no_report(tmp_path: Path) -> None:
    rule = 30 * "-"
    lines = (
        line
        for step in STEPS
        for line in (
            *(rule, "| play/       |        |", f"|  ep_rew_mean | {step} |"),
            *("| time/       |        |", f"|  total_timesteps | {100 * step} |"),
            *("| train/      |        |", f"|  loss | {loss(step):.4f} |", rule),
        )
    )
    (found,) = read(lines, tmp_path)
    assert found.run.observations.step.tolist() == [100 * step for step in STEPS]
    assert found.run.observations["reward"].tolist() == STEPS


@pytest.mark.parametrize("begins", ["| epoch {} | |", "Saving the checkpoint\n| epoch {} | |", "| epoch={} | |"])
def test_a_row_that_states_an_epoch_is_no_group(begins: str, tmp_path: Path) -> None:
    row = begins + "\n| train_loss | {:.4f} |\n| val_loss | 2.5 |"
    lines = (row.format(10 * epoch, loss(epoch)) for epoch in STEPS)
    (found,) = read(lines, tmp_path)
    assert found.run.observations.step.tolist() == [10 * epoch for epoch in STEPS]


def test_epochs_in_brackets_are_no_processes(tmp_path: Path) -> None:
    lines = (f"({epoch}/3) step {step} loss {loss(step)}" for epoch in (1, 2, 3) for step in STEPS)
    assert sum(len(found.run.observations) for found in read(lines, tmp_path)) == 3 * POINTS


@pytest.mark.parametrize("buffered", [2, 6])
def test_numbers_before_few_lines_of_each_are_processes(buffered: int, tmp_path: Path) -> None:
    """Of 6 epochs, each process writes several at once."""
    lines = [
        f"{rank}: epoch {epoch} loss {4 - epoch / 9 + rank}"
        for begin in range(0, 6, buffered)
        for rank in range(8)
        for epoch in range(begin, begin + buffered)
    ]
    (logged,) = read(lines, tmp_path)
    assert logged.run.observations.step.tolist() == [*range(6)]
    assert WORKERS in logged.notes


@pytest.mark.parametrize("level", LEVELS)
def test_a_process_after_a_time_and_a_level_is_one(level: str, tmp_path: Path) -> None:
    lines = (
        f"2026-01-01 12:00:00,123 {level} [rank{rank}]: step {n} loss {4 - n / 9}" for n in range(9) for rank in "01"
    )
    (logged,) = runs_of(log(tmp_path, *lines))
    assert logged.run.observations.step.tolist() == [*range(9)]
    assert logged.notes == [WORKERS]
