"""Losses that are left empty, as NaN is by many writers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmetric.diagnosis import diagnose_runs
from rmetric.errors import UserError
from rmetric.importers import runs_of

ROWS, FROM = 120, 60


def losses_of(log: Path) -> tuple[list[float], list[str]]:
    """Training losses of a log's only run, and the notes on it."""
    (found,) = runs_of(log)
    return found.run.observations["training_loss"].tolist(), found.notes


def row(step: int, loss: float | None, **more: Any) -> dict[str, Any]:
    """A row of a log in JSON Lines."""
    return {"step": step, "loss": loss, **more}


def write(log: Path, rows: list[dict[str, Any]]) -> Path:
    """A log with these rows."""
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return log


@pytest.mark.parametrize("more", [{}, {"lr": 1e-3}])
def test_a_loss_that_stays_null_was_not_finite(tmp_path: Path, more: dict[str, float]) -> None:
    rows = [row(step, 2.0 - 0.01 * step if step < FROM else None, **more) for step in range(ROWS)]
    losses, notes = losses_of(write(tmp_path / "log.jsonl", rows))
    assert losses[-1] == math.inf and np.isinf(losses).tolist() == [step >= FROM for step in range(ROWS)]
    assert (
        "the training loss is empty from step 60 on, 20 rows at least: taken as not finite, "
        "for many writers leave NaN empty" in notes
    )


def test_an_empty_cell_is_the_same(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    lines = [f"{step},{2.0 if step < FROM else ''},0.001" for step in range(ROWS)]
    log.write_text("step,loss,lr\n" + "\n".join(lines))
    assert losses_of(log)[0][-1] == math.inf


@pytest.mark.parametrize(
    "rows",
    [
        [row(step, 2.0 if step < FROM else None, acc=None if step < FROM else 0.5) for step in range(ROWS)],
        [row(step, 2.0 if step < FROM else None, val_loss=None if step < FROM else 2.0) for step in range(ROWS)],
        [row(step, 2.0 if step % 10 == 0 and step < FROM else None, lr=1e-3) for step in range(ROWS)],
        [row(step, None if FROM <= step < FROM + 10 else 2.0, lr=1e-3) for step in range(ROWS)],
        [{"step": step, "lr": 1e-3} | ({"loss": 2.0} if step < FROM else {}) for step in range(ROWS)],
    ],
    ids=["evaluations", "validation", "seldom", "a gap", "left out"],
)
def test_what_was_not_measured_is_left_so(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    losses, notes = losses_of(write(tmp_path / "log.jsonl", rows))
    assert not np.isinf(losses).any() and not any("empty" in note for note in notes)


def test_nan_as_a_text_beside_numbers_is_an_empty_loss(tmp_path: Path) -> None:
    rows = [row(step, "NaN" if step >= FROM else 2.0, lr=1e-3) for step in range(ROWS)]
    losses, notes = losses_of(write(tmp_path / "log.jsonl", rows))
    assert np.flatnonzero(np.isinf(losses)).tolist() == list(range(FROM, ROWS))
    assert any(f"empty from step {FROM} on" in note for note in notes)


@pytest.mark.parametrize("known", [1, 2, 19])
@pytest.mark.parametrize("counter", ["step", "epoch"])
def test_a_loss_that_stays_null_after_a_few_numbers_may_come_again(tmp_path: Path, known: int, counter: str) -> None:
    rows = [{counter: count, "loss": 2.0 if count < known else None, "accuracy": 0.1} for count in range(49)]
    losses, notes = losses_of(write(tmp_path / "log.jsonl", rows))
    assert not np.isinf(losses).any()
    assert f"the last {49 - known} rows have no training loss" in notes


@pytest.mark.parametrize("every", [30, 50])
def test_a_loss_that_is_stated_every_few_rows_is_finite_between(tmp_path: Path, every: int) -> None:
    rows = [row(step, None if step % every else 2.0, lr=1e-3) for step in range(ROWS - 1)]
    losses, _ = losses_of(write(tmp_path / "log.jsonl", rows))
    assert not np.isinf(losses).any()


@pytest.mark.parametrize(("rows", "more"), [(4, "accuracy"), (30, "reward"), (30, "accuracy")])
def test_a_loss_without_any_number_that_may_not_be_used_is_named(tmp_path: Path, rows: int, more: str) -> None:
    log = tmp_path / "log.csv"
    log.write_text("\n".join([f"epoch,loss,{more}", *(f"{n},,0.1" for n in range(rows))]))
    with pytest.raises(UserError, match=rf"its columns: 'epoch', '{more}'; empty in all rows: 'loss'\)"):
        [*runs_of(log)]


@pytest.mark.parametrize("missing", [2, 3, 19])
def test_too_few_empty_losses_at_the_end_are_told(tmp_path: Path, missing: int) -> None:
    rows = [row(step, 2.0 if step < FROM else None, lr=1e-3) for step in range(FROM + missing)]
    losses, notes = losses_of(write(tmp_path / "log.jsonl", rows))
    assert len(losses) == FROM + missing and not np.isinf(losses).any()
    assert (f"the last {missing} rows have no training loss" in notes) == (missing >= 3)


def test_evaluations_between_empty_losses_keep_their_place(tmp_path: Path) -> None:
    rows = [row(step, 2.0 if step < FROM else None, lr=1e-3) for step in range(ROWS)]
    rows = [
        one for step, row_ in enumerate(rows) for one in (row_, {"step": step, "val_loss": 2.0})[: 1 + (step % 5 == 0)]
    ]
    losses, _ = losses_of(write(tmp_path / "log.jsonl", rows))
    assert np.isinf(losses).tolist() == [step >= FROM for step in range(ROWS)]


@pytest.mark.parametrize(("nan", "measured"), [(range(3), False), ((0, 1, 50), True), (range(40), True)])
def test_a_loss_that_is_nan_in_the_first_rows_alone_was_not_measured(
    tmp_path: Path, nan: Iterable[int], measured: bool
) -> None:
    rows = [row(step, math.nan if step in nan else 2.0 - 0.01 * step, lr=1e-3) for step in range(ROWS)]
    losses, notes = losses_of(write(tmp_path / "log.jsonl", rows))
    assert len(losses) == ROWS
    assert np.isinf(losses).any() == measured
    assert any("before its first number" in note for note in notes) != measured


@pytest.mark.parametrize(("last", "told"), [((12.2, 1.8e-6), True), ((1e-3, 1e-4, 1e-5), False)])
def test_a_loss_that_fell_to_zero_within_a_few_records_is_told(
    tmp_path: Path, last: tuple[float, ...], told: bool
) -> None:
    values = [*(2.0 - 0.01 * step for step in range(50)), *last, *[0.0] * 20]
    _, notes = losses_of(write(tmp_path / "log.jsonl", [row(step, loss) for step, loss in enumerate(values)]))
    assert any("exactly 0" in note and "writes 0 for NaN" in note for note in notes) == told


@pytest.mark.parametrize(("norm", "told"), [(0.05, False), (0.0, True), (math.nan, True)])
def test_a_loss_of_0_with_a_gradient_is_one(tmp_path: Path, norm: float, told: bool) -> None:
    rows = [row(step, 2.0 if step < 9 else 0.0, grad_norm=1.0 if step < 9 else norm) for step in range(20)]
    _, notes = losses_of(write(tmp_path / "log.jsonl", rows))
    assert any("exactly 0" in note for note in notes) == told


def test_a_run_that_begins_without_losses_is_judged_by_its_own(tmp_path: Path) -> None:
    rows = [row(step, 2.0, lr=1e-3) for step in range(ROWS)] + [row(step, None, lr=1e-3) for step in range(40)]
    first, second = runs_of(write(tmp_path / "log.jsonl", rows + [row(step, 2.0, lr=1e-3) for step in range(40, 80)]))
    assert len(first.run.observations) == ROWS and len(second.run.observations) > 40
    assert not any("empty" in note for note in [*first.notes, *second.notes])


def test_evaluations_of_rows_of_their_own_that_are_all_nan_were_measured(tmp_path: Path) -> None:
    trained = [{"step": step, "loss": 3.0 - step / 100} for step in range(ROWS)]
    rows = [row for step in range(ROWS) for row in (trained[step], {"step": step, "eval_loss": math.nan})]
    (found,) = runs_of(write(tmp_path / "log.jsonl", rows))
    assert np.isinf(found.run.observations["validation_loss"]).all()


@pytest.mark.parametrize(
    ("counter", "rows", "numbers", "measured"),
    [
        ("epoch", 200, [], False),
        ("epoch", 100, [0], False),
        ("epoch", 101, [0], True),
        ("epoch", 30, [10, 20], False),
        ("epoch", 220, [49, 99], False),
        ("epoch", 260, [49, 99], True),
        ("step", 260, [49, 99], False),
    ],
)
def test_a_validation_loss_that_is_nan_in_clearly_more_epochs_than_before_was_measured(
    counter: str, rows: int, numbers: list[int], measured: bool, tmp_path: Path
) -> None:
    log = tmp_path / "log.csv"
    lines = (f"{row},{3 - row / 100},{2.0 if row in numbers else 'nan'}" for row in range(rows))
    log.write_text("\n".join([f"{counter},loss,val_loss", *lines]))
    (found,) = runs_of(log)
    assert np.isinf(found.run.observations["validation_loss"]).any() == measured


def test_a_run_whose_validation_loss_was_never_a_number_is_not_called_healthy(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("\n".join(["epoch,loss,val_loss", *(f"{epoch},{3 - epoch / 100},nan" for epoch in range(200))]))
    (found,) = diagnose_runs(log)
    assert not found.healthy and found.verdict == "nothing found, but the validation loss was never a number"


def test_another_training_loss_that_is_never_finite_is_told(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    epochs = (f"epoch {epoch} loss={4 - epoch / 10}\nMean training loss : nan" for epoch in range(1, 21))
    log.write_text("\n".join(epochs))
    losses, notes = losses_of(log)
    assert losses[0] == 3.9
    assert any(note.startswith("'Mean training loss' is never finite") for note in notes)
