"""Event files of TensorBoard, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest


def event_file(path: Path, points: Iterable[tuple[str, int, float]], begin: float = 0.0) -> None:
    """Write name, step and value of scalars, one a second from ``begin`` on."""
    events = pytest.importorskip("tensorboard.compat.proto.event_pb2")
    summaries = pytest.importorskip("tensorboard.compat.proto.summary_pb2")
    files = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
    writer = files.EventFileWriter(str(path.parent / "written"))
    for second, (name, step, value) in enumerate(points):
        summary = summaries.Summary(value=[summaries.Summary.Value(tag=name, simple_value=value)])
        writer.add_event(events.Event(wall_time=begin + second, step=step, summary=summary))
    writer.close()
    (written,) = (path.parent / "written").iterdir()
    written.rename(path)
    (path.parent / "written").rmdir()
