"""Tables whose rows say of which run they are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest

from rmetric import Run, read_run
from rmetric.errors import UserError
from rmetric.importers import LoneLines, run_column
from rmetric.importers.read import read_runs, runs_of
from tests.importers.layouts import log


def table(folder: Path, header: str, rows: Iterable[Sequence[object]]) -> Path:
    file = folder / "sweep.csv"
    file.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n", encoding="utf-8")
    return file


def losses(run: Run) -> list[float]:
    return run.observations["training_loss"].tolist()


def in_turn(*runs: object, steps: int = 10) -> list[tuple[object, int, float]]:
    """Rows of runs, a step of each in turn; the loss of each is its place and a hundredth of the step."""
    return [(run, step, place + step / 100) for step in range(1, steps + 1) for place, run in enumerate(runs, 1)]


def test_runs_in_turn_are_told_apart(tmp_path: Path) -> None:
    file = table(tmp_path, "run,step,loss", in_turn("warm", "cold"))
    runs = read_runs(file)
    assert [run.name for run in runs] == ["warm", "cold"]
    for place, run in enumerate(runs, 1):
        assert run.observations.step.tolist() == list(range(1, 11))
        assert losses(run) == [place + step / 100 for step in range(1, 11)]
    for found in runs_of(file):
        assert "the runs of this log are told apart by its column 'run'" in found.notes


@pytest.mark.parametrize("name", ["seed", "Run ID", "trial_number"])
def test_a_run_of_a_number_is_named_with_its_column(tmp_path: Path, name: str) -> None:
    runs = read_runs(table(tmp_path, f"{name},step,loss", in_turn(7, 8)))
    assert [run.name for run in runs] == [f"{name} 7", f"{name} 8"]


def test_runs_one_after_the_other_have_their_names_and_may_begin_anywhere(tmp_path: Path) -> None:
    rows = [("a", step, 2.0) for step in range(1, 30)] + [("b", step, 3.0) for step in range(5, 30)]
    runs = {run.name: run for run in read_runs(table(tmp_path, "run_name,step,loss", rows))}
    assert {name: len(run.observations) for name, run in runs.items()} == {"a": 29, "b": 25}


def test_one_of_them_can_be_named(tmp_path: Path) -> None:
    file = table(tmp_path, "run,step,loss", in_turn("warm", "cold"))
    assert losses(read_run(file, run="cold"))[0] == 2.01
    with pytest.raises(UserError, match=r"holds 2 runs \('warm', 'cold'\); name one"):
        read_run(file)


def test_a_run_that_begins_again_is_another_one_of_its_name(tmp_path: Path) -> None:
    rows = in_turn("a", "b") + [("b", step, 4.0) for step in range(1, 11)]
    assert [run.name for run in read_runs(table(tmp_path, "run,step,loss", rows))] == ["a", "b", "b-2"]


def test_a_seed_that_changes_while_the_steps_go_on_is_a_setting(tmp_path: Path) -> None:
    rows = [(step // 10, step, 2.0) for step in range(1, 60)]
    (run,) = read_runs(table(tmp_path, "seed,step,loss", rows))
    assert (run.name, len(run.observations)) == ("sweep", 59)


def test_a_fold_is_a_run_also_where_the_steps_go_on(tmp_path: Path) -> None:
    rows = [(step // 10, step, 2.0) for step in range(1, 60)]
    assert [run.name for run in read_runs(table(tmp_path, "fold,step,loss", rows))] == [f"fold {k}" for k in range(6)]


def test_a_fold_that_comes_back_while_the_steps_go_on_is_a_part_of_the_data(tmp_path: Path) -> None:
    rows = [(step // 10 % 3, step, 2.0) for step in range(60)]
    assert [run.name for run in read_runs(table(tmp_path, "fold,step,loss", rows))] == ["sweep"]


@pytest.mark.parametrize("place", ["cv fold {} |", "[CV fold {}/2]", "Validation fold {} -"])
def test_the_fold_of_a_cross_validation_trains(place: str, tmp_path: Path) -> None:
    lines = (
        f"{place.format(fold)} epoch {e} | loss {3 - e / 9} | val_loss {4 - e / 9}" for fold in (0, 1) for e in range(9)
    )
    runs = read_runs(log(tmp_path, *lines))
    assert [run.name for run in runs] == ["fold 0", "fold 1"]
    assert all(losses(run) == [3 - e / 9 for e in range(9)] for run in runs)


@pytest.mark.parametrize("header", ["run,step,loss", "label,step,loss"])
def test_a_log_of_one_run_keeps_its_name(tmp_path: Path, header: str) -> None:
    (run,) = read_runs(table(tmp_path, header, in_turn("only")))
    assert run.name == "sweep"


def test_epochs_of_runs_in_turn_count(tmp_path: Path) -> None:
    runs = read_runs(table(tmp_path, "run,epoch,loss", in_turn("a", "b")))
    assert [run.observations.step.tolist() for run in runs] == [list(range(1, 11))] * 2


def test_a_validation_loss_stays_with_its_run(tmp_path: Path) -> None:
    rows = [(run, step, loss, loss + 1.0 if step == 5 else "") for run, step, loss in in_turn("a", "b")]
    runs = read_runs(table(tmp_path, "run,step,loss,val_loss", rows))
    assert len(runs) == 2
    for run in runs:
        validation = run.observations["validation_loss"]
        assert np.isnan(validation[:4]).all()
        assert validation[4] == losses(run)[4] + 1.0


def test_a_column_that_is_mapped_names_no_run(tmp_path: Path) -> None:
    file = table(tmp_path, "trial,step,value", [(step, step, 2.0) for step in range(1, 20)])
    (run,) = read_runs(file, mapping={"training_loss": "value", "learning_rate": "trial"})
    assert run.name == "sweep"


def test_what_is_no_name_names_no_run(tmp_path: Path) -> None:
    file = tmp_path / "sweep.jsonl"
    lines = ({"run": run, "step": step, "loss": 2.0} for step in range(1, 20) for run in ([step], None, 0.5, ""))
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (run,) = read_runs(file, lambda line, message: None)
    assert run.name == "sweep"


@pytest.mark.parametrize("column", ["run_id", "model", "job", "name"])
def test_json_lines_of_runs_in_turn_are_told_apart(tmp_path: Path, column: str) -> None:
    file = tmp_path / "sweep.jsonl"
    lines = ({column: run, "step": step, "loss": loss} for run, step, loss in in_turn("x", "y", "z"))
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert [run.name for run in read_runs(file)] == ["x", "y", "z"]


def test_more_rows_in_turn_than_are_held_are_refused_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_column, "MOST_HELD", 15)
    with pytest.raises(UserError, match=r"rows of several runs in turn \('run'\); sort its rows by run and step"):
        read_runs(table(tmp_path, "run,step,loss", in_turn("a", "b")))


def test_a_line_of_several_runs_does_not_stand_alone(tmp_path: Path) -> None:
    assert LoneLines.of(table(tmp_path, "run,step,loss", in_turn("a", "b")), "csv", {}) is None
    assert LoneLines.of(table(tmp_path, "run,step,loss", in_turn("a")), "csv", {}) is not None
