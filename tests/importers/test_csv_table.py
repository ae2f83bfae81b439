"""CSV and its relatives."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from rmetric.batches import NumberedEvent
from rmetric.errors import UserError
from rmetric.importers import read_csv, runs_of
from rmetric.importers.csv_table import csv_rows
from rmetric.log_lines import MAX_LINE_BYTES, WHOLE_LOG

Damage = list[tuple[int, str]]


def read(tmp_path: Path, content: bytes, **mapping: str) -> tuple[list[NumberedEvent], Damage]:
    table = tmp_path / "log.csv"
    table.write_bytes(content)
    damage: Damage = []
    return list(read_csv(table, mapping, lambda line, message: damage.append((line, message)))), damage


def whole(tmp_path: Path, content: bytes, **mapping: str) -> list[NumberedEvent]:
    """What is read of a table without damage."""
    events, damage = read(tmp_path, content, **mapping)
    assert not damage
    return events


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters(tmp_path: Path, delimiter: str) -> None:
    content = "step,loss,lr\n1,2.5,0.1\n".replace(",", delimiter).encode()
    assert whole(tmp_path, content) == [(2, {"step": 1, "training_loss": 2.5, "learning_rate": 0.1})]


def test_the_rule_of_a_markdown_table_is_no_row(tmp_path: Path) -> None:
    content = b"| step | loss |\n|---:|:---|\n| 1 | 2.5 |\n"
    assert whole(tmp_path, content) == [(3, {"step": 1, "training_loss": 2.5})]


def test_an_empty_cell_was_not_measured_and_a_nan_was(tmp_path: Path) -> None:
    events = whole(tmp_path, b"step,loss,val_loss,grad_norm\n1,,nan,-inf\n2,null,N/A,1e999\n")
    assert events == [
        (2, {"step": 1, "validation_loss": math.inf, "grad_norm": math.inf}),
        (3, {"step": 2, "grad_norm": math.inf}),
    ]


@pytest.mark.parametrize("written", ["", "-", "--", "---", "**", "****", "∞", "NA", "n/a", "null", "None", "No log"])
def test_what_stands_where_nothing_was_measured_is_no_damage(tmp_path: Path, written: str) -> None:
    events, damage = read(tmp_path, f"step,loss,val_loss\n1,2.5,{written}\n".encode())
    assert (events, damage) == ([(2, {"step": 1, "training_loss": 2.5})], [])


def test_what_windows_writes_for_nan_was_measured(tmp_path: Path) -> None:
    events = whole(tmp_path, b"step,loss,grad_norm\n1,-1.#IND00,1.#INF\n")
    assert events == [(2, {"step": 1, "training_loss": math.inf, "grad_norm": math.inf})]


@pytest.mark.parametrize(
    "written", ["tensor({0})", "\"tensor({0}, device='cuda:0', grad_fn=<F>)\"", "np.float32({0})", "tensor([{0}])"]
)
def test_a_number_within_its_type_is_that_number(tmp_path: Path, written: str) -> None:
    log = tmp_path / "log.csv"
    losses = ["2.5", "1e-05", "nan"]
    log.write_text("step,loss\n" + "".join(f"{step},{written.format(loss)}\n" for step, loss in enumerate(losses)))
    (logged,) = runs_of(log)
    assert logged.run.observations["training_loss"].tolist() == [2.5, 1e-5, math.inf]


def test_what_spreadsheets_add_does_no_harm(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf# exported\r\n"step","Train Loss","note"\r\n\r\n1,2.5,"a, b"\r\n2.0,2.25,\r\n'
    events = whole(tmp_path, content)
    assert events == [(4, {"step": 1, "training_loss": 2.5}), (5, {"step": 2.0, "training_loss": 2.25})]


@pytest.mark.parametrize("head", ["# mine\n# step,loss\n", "sep=,\nstep,loss\n", "sep=,\n# mine\nstep,loss\n"])
def test_a_header_in_a_comment_and_one_after_a_separator_are_headers(tmp_path: Path, head: str) -> None:
    table = tmp_path / "log.csv"
    table.write_text(head + "1.000e+01,2.5\n2.000e+01,2.25\n")
    (logged,) = runs_of(table)
    observations = logged.run.observations
    assert (logged.format, observations.step.tolist(), logged.notes) == ("csv", [10, 20], [])
    assert observations["training_loss"].tolist() == [2.5, 2.25]


def test_a_decimal_comma_between_semicolons_is_a_number_and_a_note_is_none(tmp_path: Path) -> None:
    events = whole(tmp_path, b"step;loss;lr;note\n10;2,5;1,5e-3;a, b\n20;-0,25;0.5;3,4,5\n")
    assert events == [
        (2, {"step": 10, "training_loss": 2.5, "learning_rate": 1.5e-3}),
        (3, {"step": 20, "training_loss": -0.25, "learning_rate": 0.5}),
    ]


@pytest.mark.parametrize(
    ("table", "steps"),
    [
        ('step,loss\n990,2.5\n"1,000",2.25\n"1,234,567",2.0\n', [990, 1_000, 1_234_567]),
        ("step\tloss\n990\t2.5\n1,000\t2.25\n", [990, 1_000]),
        ("step;loss\n990;2,5\n1.000;2,125\n1.010;nan\n", [990, 1_000, 1_010]),
        ("step;loss\n990;2.5\n1,000;2.125\n1,010;3\n", [990, 1_000, 1_010]),
        ("epoch;loss\n999;2,5\n1.000;2,25\n", [999, 1_000]),
        ("epoch;step;loss\n0,500;990;2,5\n1,000;1.000;2\n", [990, 1_000]),
        ("step,loss\n1.000,2.5\n2.000,2.25\n", [1, 2]),
        ("step;loss\n1.000;2.5\n2.000;2.25\n", [1, 2]),
        ("step;loss\n1,000;2,5\n2,000;2,25\n", [1, 2]),
    ],
)
def test_thousands_of_a_step_are_told_from_decimals(tmp_path: Path, table: str, steps: list[int]) -> None:
    events = whole(tmp_path, table.encode())
    assert [event["step"] for _, event in events if "event" not in event] == steps


@pytest.mark.parametrize(
    "table", ['step,loss\n1,"1,234.5"\n2,"-1,234,567.5"\n', "step;loss\n1;1.234,5\n2;-1.234.567,5\n"]
)
def test_a_value_with_thousands_and_decimals_is_a_number(tmp_path: Path, table: str) -> None:
    events = whole(tmp_path, table.encode())
    assert [event["training_loss"] for _, event in events] == [1_234.5, -1_234_567.5]


def test_epochs_with_a_fraction_have_no_thousands(tmp_path: Path) -> None:
    table = tmp_path / "log.csv"
    table.write_text("epoch;loss\n0,250;2\n1,250;2\n")
    assert [row.values["epoch"] for row in csv_rows(table, {}, pytest.fail)] == [0.25, 1.25]


def test_a_mapped_step_may_have_thousands(tmp_path: Path) -> None:
    events = whole(tmp_path, b'n,loss\n990,2.5\n"1,000",2.25\n', step="n")
    assert [event["step"] for _, event in events] == [990, 1_000]


def test_damaged_rows_are_reported_with_their_line_and_the_rest_is_used(tmp_path: Path) -> None:
    content = b'step,loss,x\n1,2.0,a\n2,3.0\n3,4.0,"open\n4,5.0,\xff\n5,6.0,y,z\n6,7.0,b\n7,8'
    events, damage = read(tmp_path, content)
    assert [event["step"] for _, event in events] == [1, 4, 6]
    assert damage == [
        (3, "2 cells where 3 cells are due; skipped"),
        (4, "an open quote where 3 cells are due; skipped"),
        (5, "not UTF-8; the bad bytes were replaced"),
        (6, "4 cells where 3 cells are due; skipped"),
        (8, "2 cells where 3 cells are due; skipped"),
    ]


def test_the_begin_of_a_number_among_longer_ones_of_any_length_is_cut_off(tmp_path: Path) -> None:
    rows = "".join(f"{step},{3 / step + 1 / 7!r}\n" for step in range(1, 21))
    events, damage = read(tmp_path, f"step,loss\n{rows}21,0.2".encode())
    assert len(events) == 20 and damage == [(22, "cut off; skipped")]


@pytest.mark.parametrize(("delimiter", "last"), [(",", "1"), (",", "1.78"), (",", "-0."), (";", "1,7")])
def test_a_number_that_was_cut_off_is_reported_and_left_out(tmp_path: Path, delimiter: str, last: str) -> None:
    mark = "," if delimiter == ";" else "."
    rows = [f"{step}{delimiter}{3 / step:.6f}".replace(".", mark) for step in range(1, 12)]
    table = "\n".join([f"step{delimiter}loss", *rows, f"12{delimiter}{last}"])
    events, damage = read(tmp_path, table.encode())
    assert [event["step"] for _, event in events] == list(range(1, 12))
    assert damage == [(13, "cut off; skipped")]
    assert len(read(tmp_path, table.encode() + b"\n")[0]) == 12


@pytest.mark.parametrize(
    ("losses", "last"),
    [
        (["2.500000"] * 11, "1.7878"),
        (["2.500000"] * 11, "nan"),
        (["2.500000"] * 9, "1"),
        (["2.500000"] * 11 + ["2.5"], "1"),
        (["2500000"] * 11, "17"),
    ],
    ids=["nearly as long", "not finite", "few rows", "of any length", "no decimals"],
)
def test_a_short_number_at_the_end_is_one_where_the_others_do_not_tell(
    tmp_path: Path, losses: list[str], last: str
) -> None:
    table = "\n".join(["step,loss", *(f"{step},{loss}" for step, loss in enumerate([*losses, last]))])
    events = whole(tmp_path, table.encode())
    assert len(events) == len(losses) + 1


def test_a_line_without_end_is_skipped_in_bounded_memory(tmp_path: Path) -> None:
    events, damage = read(tmp_path, b"step,loss\n1,2.0\n" + b"9" * (3 * MAX_LINE_BYTES) + b"\n3,4.0\n")
    assert [event["step"] for _, event in events] == [1, 3]
    assert [line for line, _ in damage] == [3]


def test_text_where_a_number_is_due_is_left_for_the_reader_to_report(tmp_path: Path) -> None:
    events, _ = read(tmp_path, b"step,loss\none,2.0\n2,high\n")
    assert [event for _, event in events] == [
        {"step": "one", "training_loss": 2.0},
        {"step": 2, "training_loss": "high"},
    ]


def test_rows_count_where_there_is_no_step_and_that_is_said(tmp_path: Path) -> None:
    events = whole(tmp_path, b"n,loss\n5,2.5\n6,2.25\n")
    assert [event for _, event in events if "event" not in event] == [
        {"step": 1, "training_loss": 2.5},
        {"step": 2, "training_loss": 2.25},
    ]
    assert [event["text"] for _, event in events if "event" in event] == ["there is no step; rows count"]


def test_rows_count_and_a_loss_is_asked_for_where_there_is_neither_step_nor_training_loss(tmp_path: Path) -> None:
    events = whole(tmp_path, b"n,objective,gnorm\n5,2.5,1.0\n6,2.25,1.5\n")
    assert [event for _, event in events if "event" not in event] == [
        {"step": 1, "grad_norm": 1.0},
        {"step": 2, "grad_norm": 1.5},
    ]
    asked, counted = [event["text"] for _, event in events if "event" in event]
    assert asked == (
        "no column is known as a training loss; name one with --map training_loss=COLUMN ('n', 'objective')"
    )
    assert counted == "there is no step; rows count"


def test_a_table_with_nothing_but_a_step_is_of_no_use(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no column of use"):
        read(tmp_path, b"step,accuracy\n1,2\n")


def test_a_column_mapping(tmp_path: Path) -> None:
    events = whole(tmp_path, b"n,held out,loss\n1,2.0,3.0\n", step="n", validation_loss="held out")
    assert events == [(2, {"step": 1, "validation_loss": 2.0, "training_loss": 3.0})]


def test_a_mapped_column_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no column 'foo' \(columns with values: 'step', 'loss'\); name one"):
        read(tmp_path, b"step,loss\n1,2.0\n", training_loss="foo")
    _, damage = read(tmp_path, b"step,loss,gnorm\n1,2.0,1.0\n", training_loss="foo")
    assert damage == [(WHOLE_LOG, "there is no column 'foo' (columns with values: 'step', 'loss', 'gnorm')")]


def test_a_column_says_of_which_split_a_loss_is(tmp_path: Path) -> None:
    rows = [
        f"{epoch},{split},{loss}"
        for epoch in (1, 2, 3)
        for split, loss in (("val", 3.0), ("train", 2.0), ("test", 9.0))
    ]
    (tmp_path / "x.csv").write_text("\n".join(["epoch,phase,loss", *rows]))
    (logged,) = runs_of(tmp_path / "x.csv")
    seen = logged.run.observations
    assert seen.step.tolist() == [1, 2, 3]
    assert (seen["training_loss"].tolist(), seen["validation_loss"].tolist()) == ([2.0] * 3, [3.0] * 3)


@pytest.mark.parametrize("count", [9, 500])
@pytest.mark.parametrize("order", ["the latest first", "none"])
def test_rows_that_are_in_no_order_of_steps_are_refused(tmp_path: Path, count: int, order: str) -> None:
    steps = {
        "the latest first": list(range(count, 0, -1)),
        "none": random.Random(1).sample(range(count), count),
    }[order]
    (tmp_path / "x.csv").write_text("\n".join(["step,loss", *(f"{step},2.5" for step in steps)]))
    with pytest.raises(UserError, match="rows go backwards; sort its rows by step"):
        list(runs_of(tmp_path / "x.csv"))


@pytest.mark.parametrize(
    "steps",
    [
        [5, 4, 3],
        [*range(1, 4)] * 40,
        [*range(100, 600, 100)] * 40,
        [step for row in range(1, 90) for step in (row + 1, row)],
        [1, 1, 1, 2, 1, 2, 3, *range(1, 90)],
        [step for step in range(10, 900, 10) for step in (step, step)],
    ],
    ids=["too few", "runs of three", "runs of five", "a worker behind", "crashes at the start", "two rows a step"],
)
def test_rows_of_runs_one_after_the_other_are_in_order(tmp_path: Path, steps: list[int]) -> None:
    (tmp_path / "x.csv").write_text("\n".join(["step,loss", *(f"{step},2.5" for step in steps)]))
    assert list(runs_of(tmp_path / "x.csv"))


def test_an_empty_table_has_no_rows(tmp_path: Path) -> None:
    assert read(tmp_path, b"") == ([], [])


def test_a_row_of_a_callback_that_states_no_epoch_begins_none(tmp_path: Path) -> None:
    rows = [f",0.1,{step},\n{step // 10},,{step},{3 - step / 50}\n" for step in range(4, 50, 5)]
    events = whole(tmp_path, ("epoch,lr,step,loss\n" + "".join(rows)).encode())
    assert [event["step"] for _, event in events] == [*range(4, 50, 5)]
    assert all(event["learning_rate"] == 0.1 for _, event in events)


def test_nor_does_it_where_the_steps_are_those_of_an_epoch(tmp_path: Path) -> None:
    rows = [f",0.1,{step % 10},\n{step // 10},,{step % 10},{3 - step / 50}\n" for step in range(50)]
    events = whole(tmp_path, ("epoch,lr,step,loss\n" + "".join(rows)).encode())
    assert [event["step"] for _, event in events] == [*range(50)]


def test_a_learning_rate_before_the_first_record_is_a_part_of_that(tmp_path: Path) -> None:
    events, _ = read(tmp_path, b"epoch,lr,step,loss\n,0.1,0,\n0,,4,2.5\n0,,9,2.25\n")
    assert [event for _, event in events] == [
        {"step": 4, "training_loss": 2.5, "learning_rate": 0.1},
        {"step": 9, "training_loss": 2.25},
    ]


def test_the_step_of_our_monitor_is_none_beside_the_log_s_own(tmp_path: Path) -> None:
    rows = [f"{step - 1},{step},{3 - step / 50}\n,{step},\n" for step in range(5, 51, 5)]
    events = whole(tmp_path, ("rmetric/step,step,loss\n" + "".join(rows)).encode())
    assert [event["step"] for _, event in events] == [*range(5, 51, 5)]
