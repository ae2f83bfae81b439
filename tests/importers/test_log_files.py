"""Which files are logs, and of which format."""

from __future__ import annotations

import bz2
import gzip
import json
import math
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmetric.errors import UserError
from rmetric.importers import collect_logs, detect_format, read_run, runs_of

METRICS = '{"event": "METRICS", "step": 1, "training_loss": 2.0}\n'
CONTENTS = {
    "rmetric": METRICS,
    "jsonl": '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 2.0}\n',
    "csv": "step,loss\n1,2.0\n",
    "trainer_state": json.dumps({"epoch": 1.0, "log_history": [{"step": 1, "loss": 2.0}]}, indent=2),
}


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("file_name", ["log.txt", "log", "log.csv", "log.jsonl", "trainer_state.json"])
def test_the_content_decides_and_not_the_name(tmp_path: Path, name: str, file_name: str) -> None:
    file = tmp_path / file_name
    file.write_text(CONTENTS[name])
    assert detect_format(file) == name


@pytest.mark.parametrize(
    "line",
    [
        "step {0}/9: train loss {1} (80 ms, 50 tok/s)",
        "step {0} loss {1} (12.3 ms, 3 tok/s)",
        "loss:\tnan\tstep:\t{0}.",
        "step {0} a; loss {1}.5 nats",
        "loss {1}.5 a, {0}, 7 b",
    ],
)
def test_sentences_and_pairs_between_delimiters_are_no_table(tmp_path: Path, line: str) -> None:
    file = tmp_path / "log.txt"
    file.write_text("".join(line.format(step, 9 - step) + "\n" for step in range(1, 9)))
    assert detect_format(file) == "console"


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("Step;Loss (nats);Learning rate [1/step]", "{0};{1},5;0,001"),
        ("step,loss (1e-3 nats),note", "{0},{1}.5,a b"),
    ],
)
def test_a_number_in_the_name_of_a_column_is_its_unit(tmp_path: Path, header: str, row: str) -> None:
    file = tmp_path / "log.txt"
    file.write_text("".join(line + "\n" for line in [header, *(row.format(step, 9 - step) for step in range(1, 9))]))
    assert detect_format(file) == "csv"
    (logged,) = runs_of(file)
    assert logged.run.observations["training_loss"].tolist() == [9.5 - step for step in range(1, 9)]


def test_a_column_of_losses_alone_is_a_table(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    file.write_text("loss\n2.5\n2.4\n")
    assert detect_format(file) == "csv"


def test_a_compact_trainer_state_is_no_json_lines_file(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(json.dumps({"log_history": [{"step": 1, "loss": 2.0}]}))
    assert detect_format(file) == "trainer_state"


@pytest.mark.parametrize("damage", [b"\xff\xfe garbage\n", b'{"event": "EXPERIM\n', b"\xef\xbb\xbf", b"\n\n"])
def test_a_damaged_first_line_does_not_hide_the_format(tmp_path: Path, damage: bytes) -> None:
    file = tmp_path / "x"
    file.write_bytes(damage + METRICS.encode())
    assert detect_format(file) == "rmetric"


@pytest.mark.parametrize(("file_name", "name"), [("a.csv", "csv"), ("a.jsonl", "rmetric"), ("a.json", "trainer_state")])
def test_an_empty_file_goes_by_its_ending(tmp_path: Path, file_name: str, name: str) -> None:
    (tmp_path / file_name).touch()
    assert detect_format(tmp_path / file_name) == name


def test_a_header_that_only_the_mapping_explains_is_a_table(tmp_path: Path) -> None:
    file = tmp_path / "x.txt"
    file.write_text("alpha;beta\n1;2\n")
    assert detect_format(file, {"step": "alpha"}) == "csv"


@pytest.mark.parametrize("at", [3, 20])
def test_blocks_that_were_never_written_hide_no_console_log(tmp_path: Path, at: int) -> None:
    lines = [f"step {step} loss {3 - step / 10}\n" for step in range(1, 21)]
    file = tmp_path / "slurm.out"
    file.write_text("".join([*lines[:at], "\0" * 4096, *lines[at:]]))
    assert read_run(file).observations.step.tolist() == [*range(1, 21)]


@pytest.mark.parametrize("content", ["PK\x03\x04 zip", "a poem\nof two lines\n", "\x00\x01\x02"])
def test_what_is_no_log_is_refused_with_the_formats_that_there_are(tmp_path: Path, content: str) -> None:
    file = tmp_path / "x.bin"
    file.write_text(content)
    with pytest.raises(UserError, match=r"not a log in a known format.*rmetric.*trainer_state"):
        detect_format(file)


def test_a_table_of_unknown_columns_is_answered_with_the_mapping_that_reads_it(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("it_no,objective\n" + "".join(f"{step},2.5\n" for step in range(9)))
    with pytest.raises(UserError, match="--map training_loss=COLUMN, or its format with --format"):
        detect_format(log)
    assert detect_format(log, {"training_loss": "objective"}) == "csv"


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("# step, loss_train\n0.0e+00 2.4e-02 4.8e-03\n1.0e+03 2.3e-02 4.7e-03\n", "3 columns of numbers"),
        ("7\n8\n", "num"),
    ],
)
def test_numbers_that_no_line_names_are_said_to_need_one(tmp_path: Path, text: str, has: str) -> None:
    (tmp_path / "table.dat").write_text(text)
    with pytest.raises(UserError, match=f"has {has}.* without names; put a line with their names before them"):
        detect_format(tmp_path / "table.dat")


def test_columns_without_names_are_mapped_by_their_places(tmp_path: Path) -> None:
    log = tmp_path / "results.txt"
    log.write_text("".join(f"  {epoch}/9  0.5G  {2.5 - epoch / 9:.4f}  {3 - epoch / 9:.4f}\n" for epoch in range(9)))
    with pytest.raises(UserError, match=r"has 4 columns .*\(in the first line 1: 0/9, 2: 0.5G, 3: 2.5000, 4: 3.0000\)"):
        detect_format(log)
    observations = read_run(log, mapping={"step": "1", "training_loss": "4"}, on_damage=lambda *_: None).observations
    assert observations.step.tolist() == [*range(9)]
    assert observations["training_loss"][:2].tolist() == [3.0, 2.8889]
    with pytest.raises(UserError, match="there is no column '5'"):
        read_run(log, mapping={"training_loss": "5"})


def test_a_folder_stands_for_its_logs_and_for_nothing_else(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.csv", "trainer_state.json", "manifest.json", "README.md", ".hidden.csv"):
        (tmp_path / name).write_text("x")
    (tmp_path / "folder.jsonl").mkdir()
    logs, note = collect_logs([tmp_path])
    assert [log.name for log in logs] == ["a.csv", "b.jsonl", "trainer_state.json"]
    assert not note


def test_of_a_folder_of_data_sets_it_is_told_how_they_are_unpacked(tmp_path: Path) -> None:
    first, second = tmp_path / "run_0_to_59.parquet", tmp_path / "run_60_to_99.parquet"
    first.touch()
    second.touch()
    for given in (tmp_path, first):
        with pytest.raises(UserError, match=rf"unpack .*rmetric\.dataset\.unpack {re.escape(str(first))} --out FOLDER"):
            collect_logs([given])


def test_a_folder_that_may_not_be_read_is_named_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # root may read every folder
    with pytest.raises(
        UserError, match=rf"^{re.escape(str(tmp_path))} cannot be read \(permission denied\); check its"
    ):
        collect_logs([tmp_path])


def test_a_log_that_is_named_twice_is_replayed_once(tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    log.touch()
    assert collect_logs([log, tmp_path, str(tmp_path / "." / "a.jsonl")])[0] == [log]


def test_the_committed_sample_stands_in_for_a_study_that_was_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = tmp_path / "logs_FULL_METRIC" / "sample"
    sample.mkdir(parents=True)
    (sample / "run.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    for paths in ([], ["logs_FULL_METRIC"]):
        logs, note = collect_logs(paths)
        assert [log.name for log in logs] == ["run.jsonl"]
        assert "sample" in note


def test_the_latest_checkpoint_stands_for_a_trainer_s_folder(tmp_path: Path) -> None:
    for step in (500, 1000, 90):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").touch()
    logs, note = collect_logs([tmp_path])
    assert [log.parent.name for log in logs] == ["checkpoint-1000"]
    assert "checkpoint-1000" in note


def test_of_two_attempts_the_latest_checkpoint_is_that_which_changed_last(tmp_path: Path) -> None:
    """The first attempt went to step 30; the second resumed at 10 and is at 20. In a copy the times tell nothing."""
    histories = {30: [3.0, 2.9, 2.8], 10: [3.0], 20: [3.0, math.nan]}
    for now, (number, losses) in enumerate(histories.items()):
        state = tmp_path / f"checkpoint-{number}" / "trainer_state.json"
        state.parent.mkdir()
        history = [{"step": 10 * (row + 1), "loss": loss} for row, loss in enumerate(losses)]
        state.write_text(json.dumps({"log_history": history}))
        os.utime(state, (1e9 + now, 1e9 + now))
    assert [log.parent.name for log in collect_logs([tmp_path])[0]] == ["checkpoint-20"]
    os.utime(tmp_path / "checkpoint-10" / "trainer_state.json", (2e9, 2e9))
    shutil.rmtree(tmp_path / "checkpoint-30")
    assert [log.parent.name for log in collect_logs([tmp_path])[0]] == ["checkpoint-20"]


def test_a_folder_of_sacred_stands_for_its_runs_that_have_curves(tmp_path: Path) -> None:
    for run in ("1", "2", "3"):
        (tmp_path / run).mkdir()
        (tmp_path / run / "run.json").write_text('{"status": "COMPLETED"}')
        curves = {} if run == "2" else {"training.loss": {"steps": [0, 1], "values": [2.5, 2.4]}}
        (tmp_path / run / "metrics.json").write_text(json.dumps(curves, indent=2))
    assert collect_logs([tmp_path]) == ([tmp_path / run / "metrics.json" for run in ("1", "3")], "")


def test_a_folder_stands_for_the_files_whose_content_is_known_whatever_their_names(tmp_path: Path) -> None:
    (tmp_path / "my_run.json").write_text('{"log_history": [{"step": 1, "loss": 2.0}]}')
    (tmp_path / "config.json").write_text('{"lr": 0.1}')
    (tmp_path / "console.2").write_text("".join(f"step {step}: loss {3.0 / step:.3f}\n" for step in range(1, 30)))
    (tmp_path / "notes.txt").write_text("It went well.\n")
    assert [log.name for log in collect_logs([tmp_path])[0]] == ["console.2", "my_run.json"]


@pytest.mark.parametrize(("path", "message"), [("none", "does not exist"), ("empty", "holds no logs")])
def test_a_missing_and_an_empty_folder_say_what_to_do(tmp_path: Path, path: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=f"{message}.*give a log or a folder of logs"):
        collect_logs([tmp_path / path])


@pytest.mark.parametrize("read", [lambda pipe: collect_logs([pipe]), detect_format])
def test_a_pipe_is_refused_before_any_of_it_is_read(tmp_path: Path, read: Callable[[Path], object]) -> None:
    pipe = tmp_path / "run.jsonl"
    os.mkfifo(pipe)
    with pytest.raises(UserError, match=r"run\.jsonl is a pipe or a device; save it to a file first"):
        read(pipe)


def test_nothing_named_and_no_study_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"name a folder of logs, or make one with python run_modern_experiments\.py"):
        collect_logs([])


@pytest.mark.parametrize("name", ["runs.parquet", "runs.parquet:transfer"])
def test_a_data_set_is_refused_with_the_command_that_unpacks_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "runs.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"data set.*rmetric\.dataset\.unpack .*runs\.parquet") as refused:
        collect_logs([tmp_path / name])
    assert "\n" not in str(refused.value)


def test_a_data_set_that_is_not_there_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist; give a log or a folder of logs"):
        collect_logs([tmp_path / "runs.parquet"])


@pytest.mark.parametrize(("packed", "command"), [(gzip.compress, "gunzip"), (bz2.compress, "bunzip2")])
def test_a_compressed_log_is_named_with_what_unpacks_it(
    packed: Callable[[bytes], bytes], command: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(packed(b'{"event":"EXPERIMENT_START","config":{}}\n'))
    with pytest.raises(UserError, match=rf"is compressed; unpack it first \({command} .*run.jsonl.gz\)"):
        detect_format(path)


def test_the_index_beside_a_data_set_is_no_log(tmp_path: Path) -> None:
    for name in ("run.jsonl", "runs.parquet", "runs_index.csv", "other_index.csv"):
        (tmp_path / name).write_text(METRICS)
    collected, _ = collect_logs([tmp_path])
    assert [log.name for log in collected] == ["other_index.csv", "run.jsonl"]


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    ("kind", "lines", "line"),
    [
        ("console", 200, "step {} | loss {} | größe ok\r\n"),
        ("csv", 2_000, "{},{},\u2028é\r\n"),
        ("jsonl", 2_000, '{{"step": {}, "loss": {}}}\n'),
        ("trainer_state", 2_000, '{{"step": {}, "loss": {}}},\r\n'),
    ],
)
def test_a_log_that_powershell_wrote_is_read_like_any_other(
    tmp_path: Path, encoding: str, kind: str, lines: int, line: str
) -> None:
    head = {"csv": "step,loss,note\r\n", "trainer_state": '{"log_history": [\r\n'}.get(kind, "")
    end = '{"step": 2001, "train_runtime": 1.0}]}' if kind == "trainer_state" else ""
    text = head + "".join(line.format(step, 4.0 / step) for step in range(1, lines + 1)) + end
    found = {}
    for name, content in {"eight": text.encode(), "sixteen": ("\ufeff" + text).encode(encoding)}.items():
        log = tmp_path / f"{name}.log"
        log.write_bytes(content)
        assert detect_format(log) == kind
        [read] = runs_of(log)
        found[name] = read.run.observations
    assert len(found["sixteen"]) == lines
    assert found["sixteen"].step.tolist() == found["eight"].step.tolist()
    assert found["sixteen"]["training_loss"].tolist() == found["eight"]["training_loss"].tolist()
