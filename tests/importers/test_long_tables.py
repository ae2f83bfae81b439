"""Long tables: a row for each number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmetric.errors import UserError
from rmetric.importers import read_run, read_runs

STEPS = range(1, 21)


def written(folder: Path, name: str, lines: list[str]) -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("order", ["by step", "by metric"])
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_each_value_is_of_the_metric_beside_it(tmp_path: Path, form: str, order: str) -> None:
    rows = [(step, "train/loss", 3.0 - step / 10) for step in STEPS] + [(step, "lr", 0.1) for step in STEPS]
    rows += [(step, "val/loss", 3.1 - step / 10) for step in (10, 20)]
    rows = sorted(rows) if order == "by step" else rows
    if form == "csv":
        lines = ["step,metric,value", *(f"{step},{name},{value}" for step, name, value in rows)]
    else:
        lines = [json.dumps({"name": name, "value": value, "step": step}) for step, name, value in rows]
    run = read_run(written(tmp_path, f"metrics.{form}", lines))
    assert run.observations.step.tolist() == [*STEPS]
    assert run.observations["training_loss"][-1] == 1.0
    assert run.observations["learning_rate"].tolist() == [0.1] * len(STEPS)
    assert run.evaluations()[0].tolist() == [10, 20]


def test_runs_of_a_long_table_are_told_apart(tmp_path: Path) -> None:
    lines = ["Run,Run ID,Metric,Step,Timestamp,Value"]
    for run in ("fox", "owl"):
        lines += (f"{run},id-of-{run},train_loss,{step},{1000 * step},{3.0 - step / 10}" for step in STEPS)
    runs = list(read_runs(written(tmp_path, "metrics.csv", lines)))
    assert [len(run.observations) for run in runs] == [20, 20]


def test_a_single_number_is_named_by_its_file(tmp_path: Path) -> None:
    lines = ["Wall time,Step,Value", *(f"1700000000.5,{step},{3.0 - step / 10}" for step in STEPS)]
    run = read_run(written(tmp_path, "run-train-tag-Loss_train.csv", lines))
    assert run.observations["training_loss"][-1] == 1.0
    with pytest.raises(UserError, match=r"no column of use \(its columns: 'Wall time', 'Step', 'Value'\)"):
        read_run(written(tmp_path, "run-train-tag-accuracy.csv", lines))
    assert len(read_run(tmp_path / "run-train-tag-accuracy.csv", mapping={"training_loss": "Value"}).observations) == 20


def test_a_column_a_run_as_a_chart_is_exported(tmp_path: Path) -> None:
    names = [f"{run} - {name}" for run in ("small - lr 1", "large") for name in ("train/loss", "train/loss__MIN", "lr")]
    lines = [",".join(f'"{name}"' for name in ["Step", *names])]
    for step in STEPS:  # "large" begins after "small" has ended
        small = f'"{3.0 - step / 10}","0","0.1"'
        lines.append(f'"{step}",{small},"","",""')
    lines += [f'"{step}","","","","{9.0 - step / 10}","0","0.2"' for step in range(21, 36)]
    small, large = read_runs(written(tmp_path, "wandb_export.csv", lines))
    assert (small.name, large.name) == ("small - lr 1", "large")
    assert small.observations.step.tolist() == [*STEPS] and large.observations.step.tolist() == [*range(21, 36)]
    assert [run.observations["training_loss"][-1] for run in (small, large)] == [1.0, 5.5]
    assert large.observations["learning_rate"].tolist() == [0.2] * 15
