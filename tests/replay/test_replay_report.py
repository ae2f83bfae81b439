"""The files of a replay."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import matplotlib
import numpy as np
import orjson
import pytest

from rmetric.replay.overview import overview_text
from rmetric.replay.plot import draw_replay
from rmetric.replay.report import CsvWriter, output_names, replays_to_folder
from tests.replay.logs import drawn, replayed


def test_a_table_cell_tells_missing_from_not_finite(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    with open(path, "wb") as file, CsvWriter(file) as writer:
        for _ in range(2):
            writer.write({"a": np.array([1, 2]), "b": np.array([np.nan, np.inf]), "c": np.array([True, False])})
    assert path.read_text() == "a,b,c\n1,,1\n2,inf,0\n1,,1\n2,inf,0\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("chunks", [1, 3])
def test_a_full_disk_is_an_error_though_another_thread_writes(chunks: int) -> None:
    with pytest.raises(OSError, match="No space left"), open("/dev/full", "wb", buffering=0) as file:  # noqa: SIM117
        with CsvWriter(file) as writer:
            for _ in range(chunks):
                writer.write({"a": np.arange(10_000.0)})


def test_output_names_never_meet_each_other_the_overview_or_an_input(tmp_path: Path) -> None:
    logs = [
        tmp_path / "a" / "run.jsonl",
        tmp_path / "b" / "RUN.jsonl",
        tmp_path / "summary.jsonl",
        tmp_path / "out" / "t.csv",
        tmp_path / "t.jsonl",
        tmp_path / "model" / "trainer_state.json",
    ]
    names = output_names([(log, None) for log in logs], tmp_path / "out")
    assert names == ["a-run", "b-RUN", "summary-2", "out-t", "t-2", "model"]


def test_the_files_of_a_replay(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (replay,) = replays_to_folder(log, {None: "run"}, out)
    rows = list(csv.DictReader((out / "run.csv").read_text().splitlines()))
    assert len(rows) == replay.records == 400
    assert [int(row["step"]) for row in rows[:2]] == [10, 20]
    assert [float(row["r_metric"]) for row in rows] == replayed(log)[1]["r_metric"].tolist()
    assert rows[250]["grad_norm"] == "inf"
    assert rows[0]["validation_loss"] == ""
    summary = orjson.loads((out / "run.summary.json").read_bytes())
    assert summary["agreement_with_log"]["r_metric"] == {"records": 400, "max_difference": 0.0, "agrees": True}
    assert summary["alerts_agree_with_log"] is True
    assert [path.name for path in out.iterdir() if path.name.startswith(".")] == []


def test_a_plot_depends_on_no_settings_of_the_user_and_leaves_them_alone(log: Path, tmp_path: Path) -> None:
    made, own, plain = drawn(log), tmp_path / "own.png", tmp_path / "plain.png"
    draw_replay(*made, plain)
    with matplotlib.rc_context({"text.usetex": True, "font.size": 30.0, "axes.grid": True}):
        settings = dict(matplotlib.rcParams)
        draw_replay(*made, own)
        assert dict(matplotlib.rcParams) == settings
    assert own.read_bytes() == plain.read_bytes()


@pytest.mark.parametrize("name", ["漢字", "📈"])
def test_a_name_that_no_font_can_show_is_drawn_without_a_warning(log: Path, tmp_path: Path, name: str) -> None:
    replay, curves = drawn(log)
    draw_replay(dataclasses.replace(replay, name=name), curves, tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 10_000


def test_a_name_in_a_log_cannot_break_the_overview_or_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    evil = "a|b\u001b[31m\nc\ud800" + "x" * 10_000
    lines = [
        {"event": "EXPERIMENT_START", "config": {"fault_injection": {"type": evil}, "model_type": evil}},
        {"event": "METRICS", "step": 1, "training_loss": 1.0, "alerts": {evil: 1}},
        {"event": "EXPERIMENT_FAILURE", "step": 1, "reason": evil},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    (replay,) = replays_to_folder(path, {None: "run"}, tmp_path)
    text = overview_text([replay])
    assert "\u001b" not in text
    assert "a\\|b" in text
    assert len(replay.reason) <= 200
