"""Tests of the TensorBoard sink, with TensorBoard's own reader."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

from rmetric.errors import UserError
from rmetric.measurements import OBSERVABLE, VERDICTS
from rmetric.monitor.sinks import TensorBoardSink
from rmetric.monitor.sinks.tensorboard import LAYOUT

CONFIG = {"experiment_id": "x", "seed": 1, "clip": math.inf}


def metrics(step: int, loss: float) -> dict[str, object]:
    return {"event": "METRICS", "step": step, "training_loss": loss, "alerts": {}, "is_nan": False}


def test_numbers_become_curves_and_events_text(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = tmp_path / "new" / "tb"
    sink = TensorBoardSink(folder)
    sink.start(CONFIG, resume_step=None)
    for step in range(1, 5):
        sink.event(metrics(step, 3.0 - step if step < 4 else math.inf))
    sink.event({"event": "ALERT", "step": 4, "detector": "r_metric", "message": "Look at layer 3."})
    sink.close()
    sink.close()

    read = events.EventAccumulator(str(folder))
    read.Reload()
    assert read.Tags()["scalars"] == ["rmetric/training_loss"]
    points = [(point.step, point.value) for point in read.Scalars("rmetric/training_loss")]
    assert points == [(1, 2.0), (2, 1.0), (3, 0.0), (4, math.inf)]
    (alert,) = read.Tensors("rmetric/alert/text_summary")
    assert (alert.step, alert.tensor_proto.string_val) == (4, [b"Look at layer 3."])
    (config,) = read.Tensors("rmetric/config/text_summary")[0].tensor_proto.string_val
    written = json.loads(config.decode().strip("`\n"), parse_constant=pytest.fail)  # strict: no bare Infinity
    assert written == {"experiment_id": "x", "seed": 1, "non_finite": ["clip"]}


def test_a_relative_folder_stays_where_the_sink_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    monkeypatch.chdir(tmp_path)
    sink = TensorBoardSink("tb")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    sink.start(CONFIG, resume_step=None)
    sink.event(metrics(1, 2.0))
    sink.close()
    assert str(sink) == "TensorBoard in tb" and len([*(tmp_path / "tb").iterdir()]) == 1


def test_the_curves_are_arranged_in_charts(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    layout_pb2 = pytest.importorskip("tensorboard.plugins.custom_scalar.layout_pb2")
    sink = TensorBoardSink(tmp_path)
    sink.start(CONFIG, resume_step=None)
    sink.close()
    read = events.EventAccumulator(str(tmp_path))
    read.Reload()
    (point,) = read.Tensors("custom_scalars__config__")
    layout = layout_pb2.Layout.FromString(point.tensor_proto.string_val[0])
    tags = [tag for group in layout.category for chart in group.chart for tag in chart.multiline.tag]
    assert {group.title for group in layout.category} == {*LAYOUT}
    assert "rmetric/grad_norm$" in tags and len(tags) == len({*tags})
    for tag in tags:
        assert tag.removeprefix("rmetric/").removesuffix("$") in {*OBSERVABLE, *VERDICTS}


def test_a_resumed_run_replaces_what_it_does_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    files = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
    # Files of one second and one process are read in the order of their names, where a tenth comes before a ninth.
    monkeypatch.setattr(files, "_global_uid", files.AtomicCounter(0))
    for resume_step, steps, loss in ((None, range(1, 6), 2.0), (3, range(4, 7), 1.0)):
        sink = TensorBoardSink(tmp_path)
        sink.start(CONFIG, resume_step=resume_step)
        for step in steps:
            sink.event(metrics(step, loss))
        sink.flush()
        sink.close()
    read = events.EventAccumulator(str(tmp_path))
    read.Reload()
    points = [(point.step, point.value) for point in read.Scalars("rmetric/training_loss")]
    assert points == [(1, 2.0), (2, 2.0), (3, 2.0), (4, 1.0), (5, 1.0), (6, 1.0)]


def test_without_tensorboard_the_user_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(UserError, match=r"^TensorBoard is not installed; pip install 'rmetric\[sinks\]'$"):
        TensorBoardSink(tmp_path)
