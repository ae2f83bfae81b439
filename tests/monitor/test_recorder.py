"""What stands in a live run's log: how many workers there are, and nothing that comes after its end."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from rmetric.monitor import TrainingMonitor
from rmetric.monitor.recorder import Recorder
from rmetric.monitor.sinks import Sinks
from rmetric.monitor.sinks.jsonl import JsonlSink
from tests.monitor.common import small_loss, small_training


@pytest.mark.parametrize(("number", "workers"), [(None, [0]), ("auto", [0]), (0, [0]), (-1, [0]), (3, [0, 1, 2])])
def test_what_a_configuration_says_of_a_data_loader_is_no_number_of_workers(
    number: Any, workers: list[int], tmp_path: Path
) -> None:
    model, optimizer = small_training()
    log = tmp_path / "run.jsonl"
    config = {"num_workers": number}
    with TrainingMonitor(model, optimizer, log=log, hardware=False, announce=False, config=config) as monitor:
        loss = small_loss(model, 1)
        loss.backward()
        monitor.step(loss)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert events[0]["config"]["num_workers"] == number
    assert [event["active_workers"] for event in events if event["event"] == "METRICS"] == [workers]


def test_a_hang_that_is_told_of_after_the_end_is_told_by_logging_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(Sinks([JsonlSink(tmp_path / "run.jsonl")]), {}, workers=1)
    recorder.start(None)
    recorder.close()
    with caplog.at_level(logging.WARNING, "rmetric"):
        recorder.now({"event": "HANG", "step": 3, "message": "Step 3: no progress."})
    assert [record.getMessage() for record in caplog.records] == ["R-Metric: Step 3: no progress."]
