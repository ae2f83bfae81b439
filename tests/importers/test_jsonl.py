"""JSON Lines, ours and anybody's."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from rmetric.errors import UserError
from rmetric.importers import read_event_log, read_jsonl, read_run
from rmetric.log_lines import WHOLE_LOG
from rmetric.records import Run

Damage = list[tuple[int, str]]


def run_of(folder: Path, rows: list[dict[str, Any]]) -> Run:
    """The run of a log with these rows."""
    log = folder / "run.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_run(log)


def test_an_event_log_passes_through_as_it_is(tmp_path: Path) -> None:
    lines = [{"event": "EXPERIMENT_START", "config": {"loss": 1}}, {"event": "METRICS", "step": 1, "loss": 2.0}]
    log = tmp_path / "run.jsonl"
    log.write_text("\n".join(map(json.dumps, lines)))
    assert [event for _, event in read_event_log(log, {}, pytest.fail)] == lines


def test_an_event_log_takes_an_explicit_mapping_in_its_records_only(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    log.write_text(
        '{"event": "FAULT_INJECTED", "step": 3, "l": 1}\n{"event": "METRICS", "step": 4, "l": 2.5, "m": NaN}\n'
    )
    events = [event for _, event in read_event_log(log, {"training_loss": "l", "grad_norm": "m"}, pytest.fail)]
    assert events[0] == {"event": "FAULT_INJECTED", "step": 3, "l": 1}
    assert events[1]["training_loss"] == 2.5
    assert events[1]["grad_norm"] == math.inf


def test_nan_as_c_writes_it_was_measured(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    log.write_text("".join(f'{{"step": {step}, "loss": {"-nan" if step > 5 else 2.5}}}\n' for step in range(9)))
    assert read_run(log).observations["training_loss"].tolist() == [2.5] * 6 + [math.inf] * 3


def test_an_event_log_without_a_mapped_column_says_so(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    log.write_text('{"event": "METRICS", "step": 4, "l": 2.5, "non_finite": ["m"]}\n')
    damage: Damage = []
    mapping = {"training_loss": "foo", "grad_norm": "m"}
    assert len(list(read_event_log(log, mapping, lambda line, message: damage.append((line, message))))) == 1
    assert damage == [(WHOLE_LOG, "there is no column 'foo' (columns with values: 'step', 'l', 'non_finite')")]


def test_any_logger_s_records_are_translated_and_numbered_by_line(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(
        '{"args": {"lr": 0.1}}\n\n{"_step": 1, "train": {"loss": 2.0}, "eval/loss": 2.5}\n'
        '{"_step": "2", "train": {"loss": NaN}}\n'
    )
    damage: Damage = []
    events = list(read_jsonl(log, {}, lambda line, message: damage.append((line, message))))
    assert events == [
        (3, {"step": 1, "training_loss": 2.0, "validation_loss": 2.5}),
        (4, {"step": 2, "training_loss": math.inf}),
    ]
    assert not damage


def test_training_and_evaluation_lines_of_one_step_become_one_record(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 5, "loss": 2.0}\n{"step": 5, "eval_loss": 2.1}\n')
    assert list(read_jsonl(log, {}, pytest.fail)) == [(1, {"step": 5, "training_loss": 2.0, "validation_loss": 2.1})]


def test_a_mapped_column_that_never_occurs_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 5, "loss": 2.0}\n')
    damage: Damage = []
    events = list(read_jsonl(log, {"grad_norm": "gn"}, lambda line, message: damage.append((line, message))))
    assert len(events) == 1
    assert damage == [(WHOLE_LOG, "there is no column 'gn' (columns with values: 'step', 'loss')")]


def test_columns_in_place_of_records_are_a_table(tmp_path: Path) -> None:
    history = {"loss": [3.0, 2.0, math.nan], "val_loss": [3.5, None, 2.5], "lr": 0.1, "confusion": [1, 2]}
    (tmp_path / "history.json").write_text(json.dumps(history))
    damage: Damage = []
    run = read_run(tmp_path / "history.json", on_damage=lambda line, message: damage.append((line, message)))
    assert run.observations["training_loss"].tolist() == [3.0, 2.0, math.inf]
    assert run.evaluations()[1].tolist() == [3.5, 2.5]
    assert damage == [(1, "lists of another length are left out ('confusion')")]


@pytest.mark.parametrize(("name", "said"), [("type", "eval"), ("event", "eval_end"), ("msg", "Validation")])
def test_what_an_entry_is_may_stand_beside_its_loss(tmp_path: Path, name: str, said: str) -> None:
    rows: list[dict[str, Any]] = [{name: "train", "step": step, "loss": 3.0 - step / 10} for step in range(1, 9)]
    rows.insert(4, {name: said, "step": 4, "loss": 9.0})
    rows.insert(0, {name: said, "step": 0, "loss": 10.0})
    run = run_of(tmp_path, rows)
    assert run.observations["training_loss"][-8:].tolist() == pytest.approx([3.0 - step / 10 for step in range(1, 9)])
    assert [column.tolist() for column in run.evaluations()] == [[0, 4], [10.0, 9.0]]


def test_an_object_with_the_step_and_the_loss_is_the_record(tmp_path: Path) -> None:
    rows = [{"ts": 1.7e9, "level": "info", "fields": {"step": 5 * n, "loss": 3.0, "lr": 0.1}} for n in range(1, 9)]
    observations = run_of(tmp_path, [{"ts": 1.7e9, "level": "info", "msg": "starts"}, *rows]).observations
    assert observations.step.tolist() == [*range(5, 45, 5)]
    assert observations["learning_rate"].tolist() == [0.1] * 8
    named = read_run(tmp_path / "run.jsonl", mapping={"training_loss": "fields.loss", "step": "fields.step"})
    assert named.observations.step.tolist() == [*range(5, 45, 5)]


def test_a_list_beside_a_loss_is_no_table(tmp_path: Path) -> None:
    rows = [{"step": step, "loss": 3.0 - step / 10, "layer_losses": [1.0, 2.0, 3.0]} for step in range(1, 9)]
    assert run_of(tmp_path, rows).observations["training_loss"].tolist() == [row["loss"] for row in rows]


def test_a_list_in_place_of_a_number_is_told_in_a_short_line(tmp_path: Path) -> None:
    (tmp_path / "history.json").write_text(json.dumps({"step": [*range(1000)], "loss": 2.0}))
    with pytest.raises(
        UserError, match=r"that could be used \(.*not \[0, 1, .*\.\.\.\]; skipped\); check the file$"
    ) as caught:
        read_run(tmp_path / "history.json", lambda line, message: None)
    assert len(str(caught.value)) < 400


def test_a_counter_with_its_total_in_a_text_counts(tmp_path: Path) -> None:
    rows = [{"loss": 3.0 - step / 10, "global_step/max_steps": f"{5 * step}/40"} for step in range(1, 9)]
    assert run_of(tmp_path, rows).observations.step.tolist() == [*range(5, 45, 5)]


def test_what_another_split_says_without_a_loss_does_not_count(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for epoch in (1, 2, 3):
        rows += ({"mode": "train", "epoch": epoch, "iter": at, "lr": 0.1, "loss": 2.0} for at in (50, 100))
        rows += [{"mode": "val", "epoch": epoch, "iter": 625, "lr": 0.1, "accuracy": 0.5}]
    assert run_of(tmp_path, rows).observations.step.tolist() == [50, 100, 150, 200, 250, 300]


@pytest.mark.parametrize("true", ["train/global_step", "trainer/global_step", "iterations"])
@pytest.mark.parametrize("order", [1, -1])
def test_the_calls_of_wandb_are_the_step_only_where_nothing_else_is(tmp_path: Path, true: str, order: int) -> None:
    rows: list[dict[str, Any]] = [{"_step": 2 * call, true: 50 * call, "train/loss": 2.0} for call in range(1, 20)]
    rows += [{"_step": 40, "system/gpu": 0.5}, {"_step": 41, "eval/loss": 2.5}]
    rows = [dict([*row.items()][::order]) for row in rows]
    run = run_of(tmp_path, rows)
    assert run.observations.step.tolist() == [50 * call for call in range(1, 20)]
    assert run.observations["validation_loss"][-1] == 2.5


@pytest.mark.parametrize("rarely", [{"steps": 1000}, {}])
def test_a_column_that_is_rare_or_constant_takes_no_precedence_over_the_calls(
    tmp_path: Path, rarely: dict[str, int]
) -> None:
    rows = [{"_step": step, "loss": 2.0} | (rarely or ({"iter": step} if step % 5 else {})) for step in range(40)]
    run = run_of(tmp_path, rows)
    assert run.observations.step.tolist() == [*range(40)]


def test_a_bonus_alone_is_no_training_loss(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no column of use"):
        run_of(tmp_path, [{"step": step, "policy_entropy_loss": 3 - step / 9} for step in range(9)])
