"""Logs in the layouts of many programs: found by content, read with all their points, replayed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import orjson
import pytest

import rmetric
from replay_and_analyze_logs import main
from rmetric.errors import UserError
from rmetric.importers import collect_logs, runs_of, tfevents
from rmetric.replay import replay_log
from tests.importers.samples import SAMPLES, written


@pytest.mark.parametrize("name", SAMPLES)
def test_every_layout_is_read_with_its_points(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    found = list(runs_of(written(name, tmp_path)))
    assert len(found) == sample.runs
    for logged in found:
        assert logged.format == sample.format
        losses = logged.run.observations["training_loss"]
        losses = losses[~np.isnan(losses)]
        assert (len(losses), len(logged.run.evaluations()[0])) == (sample.points, sample.evaluations)
        assert losses[[0, -1]] == pytest.approx([sample.first, sample.last], abs=0.006)
        if sample.evaluations:
            assert logged.run.evaluations()[1][-1] == pytest.approx(2.2, abs=0.006)
        assert bool(logged.notes) == bool(sample.note)
        assert sample.note in " ".join(logged.notes)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, sample in SAMPLES.items() if sample.runs == 1])
def test_every_layout_can_be_replayed(name: str, tmp_path: Path) -> None:
    sample, log = SAMPLES[name], written(name, tmp_path)
    replay = replay_log(log)
    assert orjson.dumps(replay_log(log, chunk_records=8).to_dict()) == orjson.dumps(replay.to_dict())  # reads ahead
    assert replay.format == sample.format
    assert replay.records >= sample.points
    assert any(sample.note in note for note in replay.notes) or not sample.note


def test_a_file_with_several_runs_is_replayed_run_by_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = written("sweep", tmp_path)
    assert main([str(log), "--out", str(tmp_path / "out"), "--no-plot"]) == 0
    assert {path.name for path in (tmp_path / "out").glob("*.csv")} == {
        "sweep.csv",
        "sweep-2.csv",
        "sweep-3.csv",
        "summary.csv",
    }
    assert "epochs count" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"holds 3 runs \('sweep', 'sweep-2', 'sweep-3'\); name one with run="):
        replay_log(log)
    assert replay_log(log, run="sweep-2").records == 40


def test_one_run_of_several_must_be_named(tmp_path: Path) -> None:
    log = written("mlflow_database", tmp_path)
    for read in (rmetric.read_run, replay_log):
        with pytest.raises(UserError, match=r"2 runs \('one', 'two'\); name one with run="):
            read(log)
        with pytest.raises(UserError, match=r"2 runs \('one', 'two'\); none is named 'three'"):
            read(log, run="three")
    assert rmetric.read_run(log, run="two").name == "two"
    assert replay_log(log, run="two", chunk_records=8).records == replay_log(log, run="two").records > 16
    assert [run.name for run in rmetric.read_runs(log)] == ["one", "two"]


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_folder_can_be_a_log(name: str, tmp_path: Path) -> None:
    folder = written(name, tmp_path)
    assert collect_logs([folder]) == ([folder], "")
    assert collect_logs([tmp_path]) == ([tmp_path], "")
    assert len(rmetric.read_run(folder).observations) == 40


def test_the_curves_of_dvclive_are_read_and_not_its_last_values(tmp_path: Path) -> None:
    folder = written("dvclive", tmp_path)
    assert (folder / "metrics.json").exists() and collect_logs([folder]) == ([folder], "")


RESUMED = [*range(10, 310, 10), *range(210, 410, 10)]
"""Steps of a run that was resumed from step 200."""


def _judge_resumed(log: Path) -> None:
    first, second = rmetric.read_runs(log)
    for run, steps in ((first, RESUMED[:30]), (second, RESUMED[30:])):
        assert run.observations.step.tolist() == steps
        assert run.observations["training_loss"].tolist() == [2.0 - step / 1000 for step in steps]
        assert run.observations["grad_norm"].tolist() == [1.0 + step / 1000 for step in steps]
    assert first.evaluations()[0].tolist() == [100, 200, 300] and second.evaluations()[0].tolist() == [300, 400]


def _metrics_of_resumed() -> Iterator[tuple[str, int, float, int]]:
    """Name, time, value and step."""
    for time, step in enumerate(RESUMED, start=1_700_000_000_000):
        yield "loss", time, 2.0 - step / 1000, step
        yield "grad_norm", time, 1.0 + step / 1000, step
        if step % 100 == 0:
            yield "val_loss", time, 2.1 - step / 1000, step


def test_a_run_of_mlflow_that_was_resumed_falls_into_two(tmp_path: Path) -> None:
    (tmp_path / "metrics").mkdir()
    (tmp_path / "meta.yaml").touch()
    for name, time, value, step in _metrics_of_resumed():
        with (tmp_path / "metrics" / name).open("a") as file:
            file.write(f"{time} {value!r} {step}\n")
    _judge_resumed(tmp_path)


def test_a_run_in_a_data_base_of_mlflow_that_was_resumed_falls_into_two(tmp_path: Path) -> None:
    log = written("mlflow_database", tmp_path)
    with closing(sqlite3.connect(log)) as base, base:
        base.execute("DELETE FROM metrics")
        for name, time, value, step in _metrics_of_resumed():
            base.execute("INSERT INTO metrics VALUES (?, ?, ?, 'id-two', ?, 0)", (name, value, time, step))
    _judge_resumed(log)


def test_a_folder_of_offline_runs_is_a_log(tmp_path: Path) -> None:
    run = tmp_path / "wandb" / "offline-run-1"
    run.mkdir(parents=True)
    written("wandb", run)
    assert collect_logs([tmp_path]) == ([tmp_path], "")
    assert rmetric.read_run(tmp_path).name == "run-abc"


def test_a_folder_of_console_output_stands_for_its_files(tmp_path: Path) -> None:
    log = written("nanogpt", tmp_path)
    assert collect_logs([tmp_path]) == ([log], "")


def test_a_folder_of_lightning_stands_for_its_tables(tmp_path: Path) -> None:
    version = tmp_path / "lightning_logs" / "version_0"
    version.mkdir(parents=True)
    written("lightning", version).rename(version / "metrics.csv")
    assert collect_logs([tmp_path]) == ([version / "metrics.csv"], "")


def test_a_run_of_no_use_beside_others_is_left_out_and_names_are_made_unlike(tmp_path: Path) -> None:
    log = written("mlflow_database", tmp_path)
    with closing(sqlite3.connect(log)) as base, base:
        base.execute("UPDATE runs SET name = 'baseline'")
        base.execute("INSERT INTO runs VALUES ('id-three', 'evaluate', 2)")
        base.execute("INSERT INTO metrics VALUES ('accuracy', 0.5, 1, 'id-three', 1, 0)")
        base.execute("UPDATE metrics SET value = 1.7976931348623157e308 WHERE run_uuid = 'id-two' AND step = 40")
        base.execute("INSERT INTO runs VALUES ('id-four', 'empty', 3)")
    one, two = rmetric.read_runs(log)
    assert (one.name, two.name) == ("baseline", "baseline-2")
    told = [note for logged in runs_of(log) for note in logged.notes if "left out" in note]
    assert told == ["runs of this log that hold nothing of use are left out (2): 'evaluate', 'empty'"]
    assert two.observations["training_loss"][-1] == float("inf") != one.observations["training_loss"][-1]
    with closing(sqlite3.connect(log)) as base, base:
        base.execute("DELETE FROM metrics WHERE run_uuid != 'id-three'")
        base.execute("DELETE FROM runs WHERE run_uuid NOT IN ('id-three', 'id-four')")
    with pytest.raises(UserError, match="no column of use"):
        rmetric.read_runs(log)


def test_event_files_beyond_the_first_thousand_are_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written("tensorboard", tmp_path)
    shutil.copytree(folder, folder / "another")
    monkeypatch.setattr(tfevents, "MAX_FILES", 1)
    told: list[str] = []
    assert len(rmetric.read_runs(folder, lambda line, text: told.append(text))) == 1
    assert any(text.endswith("event files; the rest is left out") for text in told)


def test_a_sum_of_parts_beyond_all_numbers_is_not_finite(tmp_path: Path) -> None:
    log = tmp_path / "losses.csv"
    log.write_text("step,train/box_loss,train/cls_loss\n" + "".join(f"{step},1e308,1e308\n" for step in range(5)))
    assert rmetric.read_run(log).observations["training_loss"].tolist() == [float("inf")] * 5
