"""Runs that go on from an earlier step, in one log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from rmetric.diagnosis import diagnose_runs
from rmetric.importers import runs_of


def steps_of(tmp_path: Path, rows: Iterable[dict[str, float]]) -> list[list[int]]:
    """Steps of each run of a log with these rows."""
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [one.run.observations.step.tolist() for one in runs_of(log)]


def trained(*steps: int) -> list[dict[str, float]]:
    """A row with a loss for each step."""
    return [{"step": step, "loss": 2.0 - 0.001 * step} for step in steps]


def test_a_run_that_is_resumed_from_an_earlier_step_is_read_to_its_end(tmp_path: Path) -> None:
    found = steps_of(tmp_path, trained(*range(0, 50), *range(20, 80)))
    assert found == [[*range(50)], [*range(20, 80)]]


def test_evaluations_between_do_not_matter(tmp_path: Path) -> None:
    rows = [*trained(*range(10)), *trained(5), {"step": 5, "val_loss": 2.1}, *trained(6, 7, 8)]
    assert steps_of(tmp_path, rows) == [[*range(10)], [5, 6, 7, 8]]


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        ([*range(20), 12, 20, 21, 22, 23], [*range(24)]),
        ([*range(20), 12, 13, 20, 21, 22], [*range(23)]),
        ([*range(20), 12, 12, 12, 12, 20], [*range(21)]),
        ([0, 1, 2, 4, 3, 5, 7, 6, 8, 9, 11, 10, 12, 13], [0, 1, 2, 4, 5, 7, 8, 9, 11, 12, 13]),
    ],
)
def test_single_rows_that_go_back_are_strays(tmp_path: Path, steps: list[int], kept: list[int]) -> None:
    assert steps_of(tmp_path, trained(*steps)) == [kept]


@pytest.mark.parametrize("starts", [1, 3])
def test_a_run_that_is_given_up_after_its_first_report_takes_nothing_from_the_next(starts: int, tmp_path: Path) -> None:
    rows = [{"step": 50, "loss": 9.0 + start} for start in range(starts)]
    assert steps_of(tmp_path, [*rows, *trained(50, 100, 150, 200)]) == [[50]] * starts + [[50, 100, 150, 200]]


@pytest.mark.parametrize("steps", [[50, 50, 100, 100, 150, 150], [50, 50, 100, 100, 150, 200]])
def test_reports_that_share_a_step_are_no_starts(steps: list[int], tmp_path: Path) -> None:
    rows = [{"step": step, "loss": 9.0 - 0.1 * row} for row, step in enumerate(steps)]
    assert steps_of(tmp_path, rows) == [sorted({*steps})]


@pytest.mark.parametrize("steps", [1, 500])
def test_a_step_that_goes_back_with_its_epoch_is_a_resumption(tmp_path: Path, steps: int) -> None:
    order = [*range(steps, 180 * steps, steps), *range(150 * steps, 300 * steps, steps)]
    rows = [{"step": step, "loss": 2.0, "epoch": step / 500} for step in order]
    assert [len(found) for found in steps_of(tmp_path, rows)] == [179, 150]


def test_batches_of_a_resumed_epoch_are_counted_on_from_the_epochs_before(tmp_path: Path) -> None:
    places = [*((epoch, batch) for epoch in range(9) for batch in range(10)), *((7, batch) for batch in range(5, 10))]
    rows = [{"epoch": epoch, "batch": batch, "loss": 2.0} for epoch, batch in places]
    assert [found[0] for found in steps_of(tmp_path, rows)] == [0, 75]


@pytest.mark.parametrize(("missed", "epochs"), [(320, 10), (500, 10), (640, 1)])
def test_a_bar_that_was_not_drawn_for_one_report_of_a_resumed_run_ends_no_epoch(
    missed: int, epochs: int, tmp_path: Path
) -> None:
    def part(*steps: int) -> Iterator[str]:
        for step in steps:
            yield from [f" {step // 7}%|###   | {step}/640 [00:05<00:10, 20.00it/s]"] * (step != missed)
            yield f"{{'loss': '{3 - step / 500:.4f}', 'grad_norm': '1.05', 'epoch': '{epochs * step / 640:.4g}'}}"

    log = tmp_path / "console.out"
    log.write_text("\n".join([*part(*range(10, 340, 10)), *part(*range(210, 650, 10))]))
    steps = [step for step in range(210, 650, 10) if step != missed]
    assert [one.run.observations.step.tolist() for one in runs_of(log)][1:] == [steps]


def test_batches_that_begin_anew_with_an_epoch_are_one_run(tmp_path: Path) -> None:
    rows = [{"epoch": epoch, "batch": batch, "loss": 2.0} for epoch in range(3) for batch in range(10)]
    assert [len(steps) for steps in steps_of(tmp_path, rows)] == [30]


@pytest.mark.parametrize("mapping", [{}, {"step": "epoch"}])
def test_epochs_that_are_the_step_go_back_as_steps_do(tmp_path: Path, mapping: dict[str, str]) -> None:
    log = tmp_path / "log.csv"
    rows = [f"{epoch},{2.0 - 0.01 * epoch},2.1" for epoch in [*range(60), *range(20, 100)]]
    log.write_text("epoch,loss,val_loss\n" + "\n".join(rows) + "\n")
    found = [one.run.observations.step.tolist() for one in runs_of(log, mapping=mapping)]
    assert found == [[*range(60)], [*range(20, 100)]]


def test_each_attempt_is_judged_by_itself_and_says_so(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    lines = [f"step {step} loss {2.0 - 0.001 * step:.4f}" for step in range(400)]
    lines += [f"step {step} loss {'nan' if step >= 250 else 1.8}" for step in range(200, 400)]
    log.write_text("\n".join(lines))
    first, second = diagnose_runs(log)
    assert first.healthy and not first.notes
    assert [finding.name for finding in second.findings] == ["DEAD"]
    (note,) = second.notes
    assert note.startswith(
        "step 200 (loss 1.8 after 1.601) comes after step 399: a resumed run, or another one, is judged"
    )


@pytest.mark.parametrize("after", [[], trained(*range(50, 80))])
def test_an_evaluation_behind_the_training_begins_no_run(after: list[dict[str, float]], tmp_path: Path) -> None:
    rows = [*trained(*range(50)), {"step": 0, "val_loss": 2.1}, *after]
    assert steps_of(tmp_path, rows) == [[*range(50 + len(after))]]


def test_an_evaluation_before_the_training_begins_the_next_run(tmp_path: Path) -> None:
    assert steps_of(tmp_path, [{"step": 0, "val_loss": 2.1}, *trained(*range(1, 50))] * 2) == [[*range(50)]] * 2
