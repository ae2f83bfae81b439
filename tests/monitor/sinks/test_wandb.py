"""Tests of the Weights & Biases sink: a real offline run, read back with its own reader."""

from __future__ import annotations

import json
import struct
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmetric.errors import UserError
from rmetric.monitor.sinks import WandbAlerts, WandbSink

CONFIG = {"experiment_id": "x", "seed": 1}


def finished(folder: Path) -> list[Any]:
    """All records of a run that was finished: the process that writes them may be a moment late."""
    for _ in range(600):
        records = records_of(folder)
        if any(record.WhichOneof("record_type") == "exit" for record in records):
            return records
        time.sleep(0.05)
    raise AssertionError("the run was not finished")


def records_of(folder: Path) -> list[Any]:
    """The protobuf records of the only offline run in a folder.

    The file: 7 bytes, then blocks of 32 KiB that hold pieces, each with checksum (4 bytes), length (2) and kind (1:
    whole, 2: first, 3: middle, 4: last); less than 7 bytes at the end of a block are padding.
    """
    from wandb.proto import wandb_internal_pb2

    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    data, at, held, records = file.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        held += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            records.append(wandb_internal_pb2.Record.FromString(held))
            held = b""
    return records


@pytest.fixture
def no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody is logged in, and whoever asks a question gets an error."""
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")

    def refuse(*_: object) -> None:
        raise AssertionError("nobody may be asked")

    monkeypatch.setattr("builtins.input", refuse)
    monkeypatch.setattr("getpass.getpass", refuse)


@pytest.mark.slow
@pytest.mark.parametrize(("end", "exit_code"), [("EXPERIMENT_SUCCESS", 0), ("EXPERIMENT_FAILURE", 1), ("", 1)])
@pytest.mark.usefixtures("no_account")
def test_an_offline_run(end: str, exit_code: int, tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb")
    sink = WandbSink(folder=tmp_path / "new")
    sink.load_state_dict({"id": "abc123"})
    sink.start(CONFIG, resume_step=None)
    assert sink.state_dict() == {"id": "abc123"}
    assert wandb.run is None  # a training's own run is not disturbed
    for step in (3, 4):
        sink.event({"event": "METRICS", "step": step, "training_loss": 2.5 + step, "is_nan": False, "alerts": {}})
        sink.event({"event": "VALIDATION", "step": step, "validation_loss": 0.5 * step})
    sink.event({"event": "ALERT", "step": 4, "detector": "r_metric", "message": "Look at layer 3."})
    if end:
        sink.event({"event": end, "step": 4})
    sink.close()
    sink.close()

    records = finished(tmp_path / "new")
    rows = [
        {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]
    names = ("_step", "rmetric/training_loss", "rmetric/validation_loss")
    assert [tuple(row[name] for name in names) for row in rows] == [(3, 5.5, 1.5), (4, 6.5, 2.0)]
    assert {name for row in rows for name in row if name.startswith("rmetric/")} == {
        "rmetric/training_loss",
        "rmetric/validation_loss",
        "rmetric/step",
    }
    (run,) = (record.run for record in records if record.WhichOneof("record_type") == "run")
    assert (run.run_id, run.project, run.display_name) == ("abc123", "rmetric", "x")
    (alert,) = (record.alert for record in records if record.WhichOneof("record_type") == "alert")
    assert (alert.title, alert.text) == ("R-Metric: r_metric", "Look at layer 3.")
    (done,) = (record.exit for record in records if record.WhichOneof("record_type") == "exit")
    assert done.exit_code == exit_code


class Rows:
    """A run of wandb: a row is complete when it is committed or a later step comes, and takes nothing more then."""

    def __init__(self) -> None:
        self.id, self.step, self.row, self.rows = "abc123", 0, {}, []

    def log(self, values: dict[str, Any], step: int | None, commit: bool | None) -> None:
        if step is not None and step < self.step:
            return  # "Steps must be monotonically increasing, so this data will be ignored"
        if step is not None and step > self.step:
            self.complete(step)
        self.row |= values
        if commit or (commit is None and step is None):
            self.complete(self.step + 1)

    def complete(self, following: int) -> None:
        if self.row:
            self.rows.append((self.step, self.row))
        self.step, self.row = following, {}

    def finish(self, exit_code: int) -> None:
        self.complete(self.step + 1)

    def define_metric(self, name: str, step_metric: str) -> None:
        pass


def test_an_evaluation_after_a_record_reaches_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Rows()
    standing_in = SimpleNamespace(init=lambda **_: run, Settings=lambda **_: None, run=None)
    monkeypatch.setitem(sys.modules, "wandb", standing_in)
    sink = WandbSink(folder=tmp_path)
    sink.start(CONFIG, resume_step=None)
    for step in (1, 2):
        sink.event({"event": "METRICS", "step": step, "training_loss": 1.0 * step, "validation_loss": 9.0})
        sink.event({"event": "VALIDATION", "step": step, "validation_loss": 2.0 * step})
    sink.close()
    assert run.rows == [
        (step, {"rmetric/training_loss": 1.0 * step, "rmetric/validation_loss": 2.0 * step, "rmetric/step": step})
        for step in (1, 2)
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("no_account")
def test_a_run_that_is_open_gets_the_numbers_and_keeps_its_own_steps(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb")
    settings = wandb.Settings(silent=True, console="off", disable_code=True, disable_git=True)
    own = wandb.init(project="mine", mode="offline", dir=str(tmp_path), settings=settings)
    sink, alerts = WandbSink(folder=tmp_path / "other"), WandbAlerts()
    try:
        sink.start(CONFIG, resume_step=None)
        for step in range(1, 9):
            sink.event({"event": "METRICS", "step": step, "training_loss": 1.0 * step, "alerts": {}})
            if step % 4 == 0:
                own.log({"loss": -step}, step=step)
        news = {"event": "ALERT", "step": 8, "detector": "numerics", "message": "Look at layer 3."}
        for event in (news, {**news, "detector": "r_metric_robust", "repeats": "numerics"}):
            sink.event(event)
            alerts.event(event)
        sink.close()
        assert wandb.run is own  # it is its owner's to finish
    finally:
        own.finish()
    assert not (tmp_path / "other").exists()
    records = finished(tmp_path)
    rows = [
        {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]
    assert [row["loss"] for row in rows if "loss" in row] == [-4, -8]
    logged = {row["rmetric/step"]: row["rmetric/training_loss"] for row in rows if "rmetric/step" in row}
    assert logged and all(step == value for step, value in logged.items())
    sent = [record.alert for record in records if record.WhichOneof("record_type") == "alert"]
    assert [(alert.title, alert.text) for alert in sent] == [("R-Metric: numerics", "Look at layer 3.")] * 2
    WandbAlerts().event(news)  # no run is open any more


def test_without_wandb_the_user_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"^Weights & Biases is not installed; pip install 'rmetric\[sinks\]'$"):
        WandbSink()
