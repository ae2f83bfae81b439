"""``rmetric watch`` as people run it: logs that grow, vanish, are rotated and cut."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rmetric.commands import main
from tests.helpers import hearing_ctrl_c
from tests.watch.conftest import Watch, append, losses

Begin = Callable[..., Watch]


def test_findings_appear_while_the_log_grows(watch: Begin, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    watched = watch(str(log))
    assert "not there yet" in watched.output
    log.write_text(losses(0, 100))
    append(log, losses(100, 105, "NaN"))
    watched.wait_for("not finite")
    assert watched.end() == 1
    assert "run: error: " in watched.output
    assert "Traceback" not in watched.output
    assert "105 records (steps 0 to 104)" in watched.output


@pytest.mark.slow
def test_the_command_in_an_interpreter_of_its_own_ends_by_ctrl_c(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    log.write_text(losses(0, 100) + losses(100, 101, "NaN"))
    command = [sys.executable, "-m", "rmetric", "watch", str(log), "--interval", "0.05"]
    with hearing_ctrl_c():
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    assert any("not finite" in line for line in process.stdout)
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "101 records (steps 0 to 100)" in told


@pytest.mark.slow
def test_a_healthy_run_is_not_spoken_of_but_in_the_summary(watch: Begin, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(losses(0, 150))
    (tmp_path / "broken.jsonl").write_text(losses(0, 100) + losses(100, 105, "NaN"))
    watched = watch(str(tmp_path))
    watched.wait_for("not finite")
    assert watched.end() == 1
    assert watched.output.count("a: ") == 1
    assert "a: healthy, 150 records" in watched.output


def test_a_line_that_is_written_in_two_parts(watch: Begin, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    log.write_text(losses(0, 99) + '{"step": 99, "lo')
    watched = watch(str(tmp_path))
    append(log, 'ss": NaN}\n')
    watched.wait_for("not finite at step 99")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["renamed", "cut"])
def test_a_rotated_log_goes_on(how: str, watch: Begin, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    log.write_text(losses(0, 100) + losses(100, 101, "NaN"))
    watched = watch(str(log))
    watched.wait_for("not finite at step 100")
    if how == "renamed":
        log.rename(tmp_path / "run.jsonl.1")
        log.write_text(losses(101, 250))
    else:
        log.write_text(losses(101, 180))
    append(log, losses(250, 251, "NaN"))
    watched.wait_for("step 250")
    watched.end()
    assert watched.output.count(" records (steps") == 1  # one run


@pytest.mark.slow
def test_a_run_that_begins_again_in_the_same_file_is_another_run(watch: Begin, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    log.write_text(losses(0, 200) + losses(200, 205, "NaN"))
    watched = watch(str(log))
    watched.wait_for("step 200")
    log.write_text(losses(0, 60) + losses(60, 64, "NaN"))
    watched.wait_for("step 60")
    watched.end()
    assert watched.output.count(" records (steps 0 to") == 2


def test_a_file_that_is_rewritten_as_a_whole(watch: Begin, tmp_path: Path) -> None:
    def write(*values: float) -> None:
        history = [{"step": step, "loss": value} for step, value in enumerate(values)]
        new = tmp_path / "new"
        new.write_text(json.dumps({"log_history": history}))
        os.replace(new, tmp_path / "trainer_state.json")

    write(*([2.0] * 20))
    watched = watch(str(tmp_path))
    write(*([2.0] * 60), float("nan"))
    watched.wait_for("not finite at step 60")


@pytest.mark.slow
def test_the_latest_checkpoint_stands_for_all(watch: Begin, tmp_path: Path) -> None:
    watched = watch(str(tmp_path))
    for steps in (30, 60):
        history = [{"step": step, "loss": 3.0 if step < 59 else "NaN"} for step in range(steps)]
        folder = tmp_path / f"checkpoint-{steps}"
        folder.mkdir()
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": history}).replace('"NaN"', "NaN"))
    watched.wait_for("not finite at step 59")
    watched.end()
    assert watched.output.count(" records (steps") == 1


def test_a_table_with_a_header(watch: Begin, tmp_path: Path) -> None:
    log = tmp_path / "metrics.csv"
    log.write_text("# made by hand\nstep,train_loss\n0,2.5\n")
    watched = watch(str(log))
    append(log, "".join(f"{step},2.5\n" for step in range(1, 80)) + "80,nan\n")
    watched.wait_for("not finite at step 80")


def test_a_run_that_has_not_been_evaluated_yet_is_in_order(watch: Begin, tmp_path: Path) -> None:
    log = tmp_path / "metrics.csv"
    rows = [f"{epoch},{3 - epoch / 100},{'nan' if epoch % 20 else 2.5}\n" for epoch in range(1, 61)]
    log.write_text("".join(["epoch,loss,val_loss\n", *rows[:15]]))
    watched = watch(str(log))
    append(log, "".join(rows[15:]))
    assert watched.end() == 0 and "healthy, 60 records" in watched.output


def test_an_evaluation_that_comes_back_was_not_broken(watch: Begin, tmp_path: Path) -> None:
    log = tmp_path / "metrics.csv"
    rows = [f"{epoch},{3 - epoch / 1000},{2.5 if epoch % 120 == 1 else 'nan'}\n" for epoch in range(1, 241)]
    log.write_text("".join(["epoch,loss,val_loss\n", *rows[:40]]))
    watched = watch(str(log))
    append(log, "".join(rows[40:115]))
    watched.wait_for("the validation loss is not finite at step 2")
    append(log, "".join(rows[115:]))
    assert watched.end() == 0 and "healthy, 240 records" in watched.output


@pytest.mark.slow
def test_what_came_just_before_the_end_is_told(watch: Begin, tmp_path: Path) -> None:
    log = tmp_path / "run.out"  # of a format that is read as a whole, at leisure
    log.write_text("".join(f"step {step} loss 2.5\n" for step in range(20_000)))
    watched = watch(str(log))
    append(log, "".join(f"step {step} loss nan\n" for step in range(20_000, 20_100)))
    assert watched.end() == 1
    assert "run: error: DEAD at step 20,000" in watched.output
    assert "20,100 records" in watched.output


@pytest.mark.parametrize("name", ["run.csv", "run.jsonl"])
def test_a_log_that_is_largely_unread_is_not_healthy(watch: Begin, tmp_path: Path, name: str) -> None:
    log, rows = tmp_path / name, [json.loads(line) for line in losses(0, 200).splitlines()]
    lines = {
        "run.csv": ["step,loss", *(f"{row['step']},{row['loss']},0,0" for row in rows)],
        "run.jsonl": ["", *(json.dumps(row)[:20] for row in rows)],
    }[name]
    sound = {"run.csv": lambda row: f"{row['step']},{row['loss']}", "run.jsonl": json.dumps}[name]
    lines[1:121] = [*map(sound, rows[:120])]
    log.write_text("\n".join(lines[:130]) + "\n")
    watched = watch(str(log))
    append(log, "\n".join(lines[130:]) + "\n")
    watched.wait_for("line 122: ")
    assert watched.end() == 2
    assert watched.output.count("line 122: ") == 1
    assert main(["diagnose", str(log)]) == 2
    assert "but 80 of 200 lines could not be used" in watched.output


def test_a_log_that_can_no_longer_be_read_is_not_healthy(watch: Begin, tmp_path: Path) -> None:
    log, head = tmp_path / "trainer_state.json", {"of": "x" * 300}
    log.write_text(json.dumps(head | {"log_history": [{"step": step, "loss": 2.0} for step in range(3)]}))
    watched = watch(str(log))
    append(log, " " * 1000)  # another look reads the same
    log.write_text(json.dumps(head | {"log_history": ["broken"] * 1000}))
    watched.wait_for("can no longer be read")
    assert watched.end() == 2


def test_a_limit_is_told_once(watch: Begin, tmp_path: Path) -> None:
    (tmp_path / "1/2/3/4/5/6").mkdir(parents=True)
    (tmp_path / "a.jsonl").write_text(losses(0, 5))
    watched = watch(str(tmp_path), "--silent-after", "0.3")
    watched.wait_for("a: warning: SILENT")
    watched.end()
    assert watched.output.count("are not looked into") == 1


@pytest.mark.slow
def test_a_folder_with_other_files_and_a_run_that_comes_later(watch: Begin, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"lr": 0.1}')
    (tmp_path / "notes.txt").write_text("nothing of a log\n" * 10)
    watched = watch(str(tmp_path))
    (tmp_path / "later" / "deep").mkdir(parents=True)
    (tmp_path / "later" / "deep" / "a.jsonl").write_text(losses(0, 100) + losses(100, 101, "NaN"))
    watched.wait_for("a: error")
    assert watched.end() == 1


@pytest.mark.slow
def test_a_silent_run_is_told_once_and_again_when_it_goes_on(watch: Begin, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    log.write_text(losses(0, 10))
    watched = watch(str(log), "--silent-after", "0.5")
    watched.wait_for("SILENT")
    append(log, losses(10, 20))
    watched.wait_for("GOES_ON")
    watched.wait_for("SILENT", times=2)
    watched.end()
    assert watched.output.count("SILENT") == 2


def test_a_finished_run_is_not_silent(watch: Begin, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    records = "".join(f'{{"event": "METRICS", "step": {step}, "training_loss": 2.0}}\n' for step in range(10))
    log.write_text('{"event": "EXPERIMENT_START", "config": {}}\n' + records)
    (tmp_path / "other.jsonl").write_text(losses(0, 5))
    append(log, '{"event": "EXPERIMENT_SUCCESS", "step": 9}\n')
    watched = watch(str(tmp_path), "--silent-after", "0.3")
    watched.wait_for("other: warning: SILENT")
    watched.end()
    assert "run: note: ENDED at step 9" in watched.output
    assert "run: warning: SILENT" not in watched.output


def test_a_failure_that_the_log_states_is_told(watch: Begin, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    records = "".join(f'{{"event": "METRICS", "step": {step}, "training_loss": 2.0}}\n' for step in range(10))
    log.write_text('{"event": "EXPERIMENT_START", "config": {}}\n' + records)
    watched = watch(str(log))
    append(log, '{"event": "EXPERIMENT_FAILURE", "step": 9, "reason": "WORKER_LOST"}\n')
    watched.wait_for("run: note: ENDED at step 9")
    assert "run: error: FAILED at step 9: the log says that the run failed: WORKER_LOST" in watched.output
    watched.end()


def test_an_empty_path_is_not_the_current_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", ""]) == 2
    assert capsys.readouterr().err.startswith("error: the path of a log is empty")


def test_nothing_that_is_a_log(watch: Begin, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    watched = watch(str(tmp_path / "a.txt"))
    watched.wait_for("is not a log in a known format")
    assert watched.end(signal.SIGTERM) == 0
    assert "no records were seen; " in watched.output
    assert "is not a log in a known format" in watched.output


@pytest.mark.parametrize("name", ["run.csv", "run.jsonl"])
def test_a_mapped_column_that_is_not_there(watch: Begin, tmp_path: Path, name: str) -> None:
    rows = [{"step": step, "grad_norm": 1.0} for step in range(9)]
    table = "step,grad_norm\n" + "".join(f"{row['step']},1.0\n" for row in rows)
    (tmp_path / name).write_text(table if name == "run.csv" else "".join(json.dumps(row) + "\n" for row in rows))
    watched = watch(str(tmp_path / name), "--map", "training_loss=foo")
    watched.wait_for("there is no column 'foo' (columns with values: 'step', 'grad_norm'); it is looked at again")
    watched.end()
