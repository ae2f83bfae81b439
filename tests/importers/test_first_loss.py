"""A first loss of one step before losses of a hundred each."""

from pathlib import Path

import pytest

from rmetric.importers import runs_of


def steps_and_notes(tmp_path: Path, lines: list[str]) -> tuple[list[int], list[str]]:
    """Steps of the records that have a loss, and what is said of the log."""
    log = tmp_path / "train.log"
    log.write_text("\n".join(lines) + "\n")
    (logged,) = runs_of(log)
    return logged.run.observations.step.tolist(), logged.notes


def windows(first: float, begin: int = 1) -> list[str]:
    losses = [first, *(2.2 - 0.01 * window for window in range(20))]
    return [f"step {begin + 100 * window} loss {loss:.4f}" for window, loss in enumerate(losses)]


@pytest.mark.parametrize("begin", [0, 1])
def test_a_first_loss_of_one_step_is_left_out_where_the_others_are_of_a_hundred(begin: int, tmp_path: Path) -> None:
    steps, notes = steps_and_notes(tmp_path, windows(0.023, begin))
    assert steps[0] == begin + 100
    assert any("is of one step" in text for text in notes)


@pytest.mark.parametrize(
    ("first", "begin"), [(2.3, 1), (0.3, 1), (0.005, 1), (1.4, 1), (0.023, 100), (-0.023, 1), (0.0, 1)]
)
def test_another_first_loss_is_kept(first: float, begin: int, tmp_path: Path) -> None:
    steps, notes = steps_and_notes(tmp_path, windows(first, begin))
    assert steps[0] == begin
    assert not any("is of one step" in text for text in notes)


@pytest.mark.parametrize(
    "losses", [[2.3, 150.0, 140.0, 160.0], [float("nan")] * 6, [float("inf")] * 6, [0.023, 2.2, 2.1]]
)
def test_a_run_that_breaks_at_once_keeps_its_first_loss(losses: list[float], tmp_path: Path) -> None:
    lines = [f"step {100 * row} loss {loss}" for row, loss in enumerate([*losses, *losses[1:] * 3])]
    steps, _ = steps_and_notes(tmp_path, lines if len(losses) > 3 else lines[:3])
    assert steps[0] == 0


def test_a_loss_that_is_printed_each_step_is_kept_though_it_leaps(tmp_path: Path) -> None:
    steps, _ = steps_and_notes(tmp_path, [f"step {step} loss {2.3 if step == 1 else 23.0}" for step in range(1, 30)])
    assert steps[0] == 1
