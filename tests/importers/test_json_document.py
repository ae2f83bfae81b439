"""Files that are one JSON value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmetric.errors import UserError
from rmetric.importers import detect_format, read_run
from rmetric.importers.json_document import holds_table

STEPS = range(1, 21)
LOSSES = [3.0 - step / 10 for step in STEPS]
HELD_OUT = [loss + 0.1 for loss in LOSSES]

LISTS = {"train_losses": LOSSES, "val_losses": HELD_OUT}
RECORDS = [{"step": step, "loss": loss} for step, loss in zip(STEPS, LOSSES, strict=True)]
EVALUATED = [{"step": step, "loss": loss} for step, loss in zip(STEPS, HELD_OUT, strict=True)]
BOTH = [{"train_loss": loss, "val": {"loss": loss + 0.1}} for loss in LOSSES]
DOCUMENTS: dict[str, Any] = {
    "lists beside what came out at the end": {**LISTS, "train_loss": 1.0, "test_loss": 0.9, "best": {"val_loss": 1.1}},
    "lists within": {"config": {"loss": "mse"}, "history": LISTS},
    "lists of a split each": {"train": {"loss": LOSSES}, "val": {"loss": HELD_OUT}},
    "records under a name": {"args": {"lr": 0.1}, "logs": BOTH},
    "records of a split each": {"train": RECORDS, "val": EVALUATED},
    "records by number": {str(step): record for step, record in zip(STEPS, BOTH, strict=True)},
    "records by name and number, not in order": {
        f"epoch_{step}": record for step, record in reversed([*zip(STEPS, BOTH, strict=True)])
    },
    "a list of records": BOTH,
    "columns by row, as pandas writes a frame": {
        name: {str(row): value for row, value in enumerate(values)} for name, values in LISTS.items()
    },
    "columns by step": {
        name: {str(step): value for step, value in zip(STEPS, values, strict=True)} for name, values in LISTS.items()
    },
    "curves with their own steps": {
        name: {"steps": [*STEPS], "timestamps": ["2024-03-01T10:00:00"] * len(values), "values": values}
        for name, values in (("training.loss", LOSSES), ("validation.loss", HELD_OUT))
    },
}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_a_person_sees_is_read(tmp_path: Path, name: str, indent: int | None) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(DOCUMENTS[name], indent=indent))
    run = read_run(path, lambda line, message: None)
    assert run.observations.step.tolist() == [*STEPS]
    assert run.observations["training_loss"].tolist() == pytest.approx(LOSSES)
    assert run.evaluations()[1].tolist() == pytest.approx(HELD_OUT)


@pytest.mark.parametrize("before", [["epoch"], ["batch", "epoch"], ["batch", "step"], ["step_in_epoch", "epoch"]])
def test_records_in_their_order_stay_in_it_whatever_counts_first(tmp_path: Path, before: list[str]) -> None:
    records = [
        {"batch": n % 10, "step_in_epoch": n % 10, "epoch": n // 10, "step": n, "loss": 2.0 - n / 50} for n in range(40)
    ]
    columns = {name: [record[name] for record in records] for name in [*before, "loss"]}
    (tmp_path / "results.json").write_text(json.dumps(columns))
    losses = read_run(tmp_path / "results.json").observations["training_loss"]
    assert losses.tolist() == [record["loss"] for record in records]


def test_nan_as_python_writes_it(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps({"losses": [3.0, 2.0, float("nan")]}))
    assert read_run(tmp_path / "results.json").observations["training_loss"].tolist() == [3.0, 2.0, float("inf")]


def test_one_record_and_no_table_is_left_to_the_lines(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": 2.0, "layers": [{"norm": 1.0}, {"norm": 2.0}]}\n')
    assert detect_format(tmp_path / "log.jsonl") == "jsonl"


@pytest.mark.parametrize("text", ['{"losses": [3.0, 2.0', "{'losses': [3.0, 2.0]}", ""])
def test_what_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(UserError, match="is not a JSON value of at most 64 MiB; write one object a line"):
        read_run(tmp_path / "results.json", format="json")


def test_numbers_of_rows_that_no_integer_holds_are_none() -> None:
    assert not holds_table({"loss": {"1" * 5000: 2.5, "2" * 5000: 2.4}})
