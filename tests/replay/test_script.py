"""``replay_and_analyze_logs.py`` as a user runs it."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from replay_and_analyze_logs import main
from tests.helpers import ROOT, ended_by, ends_of_a_command


@pytest.mark.slow
def test_the_script_writes_a_plot_a_table_and_a_summary_for_each_log(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(log, other / log.name)
    (other / "empty.jsonl").touch()
    out = tmp_path / "results"
    assert main([str(log), str(other), "--out", str(out)]) == 0
    made = {path.name for path in out.iterdir()}
    assert made == {
        "run.csv", "run.png", "run.summary.json", "other-run.csv", "other-run.png", "other-run.summary.json",
        "empty.summary.json", "summary.csv", "summary.md",
    }  # fmt: skip
    assert all((out / f"{name}.png").read_bytes().startswith(b"\x89PNG") for name in ("run", "other-run"))
    captured = capsys.readouterr()
    assert "| other-run " in captured.out
    assert "| empty " in captured.out
    assert "warning: " in captured.err
    assert "empty.jsonl, line 1: an empty file" in captured.err
    assert (out / "summary.md").read_text() in captured.out
    assert len(list(csv.DictReader((out / "summary.csv").read_text().splitlines()))) == 3


def test_the_script_leaves_plots_out_on_request(log: Path, tmp_path: Path) -> None:
    assert main([str(log), "--out", str(tmp_path / "results"), "--no-plot"]) == 0
    assert not list((tmp_path / "results").glob("*.png"))


def test_the_script_maps_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "t.csv"
    table.write_text("n,x\n1,2.0\n2,1.5\n")
    assert main([str(table), "--out", str(tmp_path / "r"), "--no-plot"]) == 2
    assert main([str(table), "--out", str(tmp_path / "r"), "--no-plot", "--map", "step=n,validation_loss=x"]) == 0
    assert "| t " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "papper"], "did you mean 'paper'"),
        (["--format", "cvs"], "did you mean 'csv'"),
        (["--map", "los=x"], "unknown field of the log 'los'"),
        (["--weights", "1,2"], "three finite numbers"),
        (["--threshold", "0"], "above 0"),
        (["/does/not/exist"], "does not exist; give a log or a folder of logs"),
        ([""], "the path of a log is empty; is the variable set that it comes from?"),
    ],
)
def test_the_script_answers_bad_input_with_one_line(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main([str(log), "--out", str(tmp_path / "r"), *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert not captured.out


@pytest.mark.slow
def test_a_backend_of_matplotlib_that_there_is_not_is_one_line(log: Path, tmp_path: Path) -> None:
    command = [sys.executable, "replay_and_analyze_logs.py", str(log), "--out", str(tmp_path / "results")]
    own = {**os.environ, "MPLBACKEND": "nonsense"}
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: matplotlib cannot be imported, and --no-plot does without: ")


def test_a_log_in_the_output_folder_is_not_overwritten(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    content = "step,loss\n1,2.0\n2,1.5\n"
    table.write_text(content)
    for _ in range(2):
        assert main([str(table), "--out", str(tmp_path), "--no-plot"]) == 0
    assert table.read_text() == content
    assert (tmp_path / "t-2.csv").exists()


@pytest.mark.parametrize("name", ["summary.csv", "summary.md"])
def test_a_file_of_the_overview_s_name_is_not_overwritten(
    name: str, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / name
    other.write_text("step,loss\n1,2.0\n2,1.5\n")
    assert main([str(other), str(log), "--out", str(tmp_path), "--no-plot"]) == 2
    assert f"{name} is no result of a replay and would be overwritten" in capsys.readouterr().err
    assert other.read_text() == "step,loss\n1,2.0\n2,1.5\n"
    other.unlink()
    for _ in range(2):
        assert main([str(log), "--out", str(tmp_path), "--no-plot"]) == 0


@pytest.mark.slow
@ends_of_a_command
@pytest.mark.parametrize("command", [["replay_and_analyze_logs.py"], ["-m", "rmetric", "replay"]])
def test_a_signal_leaves_no_half_of_a_file(
    command: list[str], sent: signal.Signals, ended: tuple[int, str], tmp_path: Path
) -> None:
    long, out = tmp_path / "long.jsonl", tmp_path / "results"
    long.write_text("".join(f'{{"step": {step}, "loss": {2 + step % 7 / 100}}}\n' for step in range(40_000)))
    arguments = [*command, str(long), "--out", str(out), "--no-plot"]
    assert ended_by(sent, arguments, lambda: [*out.glob(".long.csv.*.part")]) == ended
    assert not [*out.iterdir()]
