"""What stands in a live run's log: how many workers there are, and nothing that comes after its end."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmetric.log_writer import SCHEMA_VERSION
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.recorder import LogConfig, Recorder, start_config
from rmetric.monitor.sinks import Sink, Sinks
from rmetric.monitor.sinks.jsonl import JsonlSink
from tests.helpers import lines_of
from tests.monitor.common import small_loss, small_training


@pytest.mark.parametrize("number", [None, "auto", 0, -1, 3])
def test_what_a_configuration_says_of_a_data_loader_is_no_number_of_workers(number: Any, tmp_path: Path) -> None:
    model, optimizer = small_training()
    log = tmp_path / "run.jsonl"
    config = {"num_workers": number}
    with TrainingMonitor(model, optimizer, log=log, hardware=False, announce=False, config=config) as monitor:
        loss = small_loss(model, 1)
        loss.backward()
        monitor.step(loss)
    events = lines_of(log.read_bytes())
    assert events[0]["config"]["num_workers"] == number
    assert [event["active_workers"] for event in events if event["event"] == "METRICS"] == [[0]]


def test_no_entry_of_the_user_takes_the_place_of_what_the_monitor_knows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, optimizer = small_training()
    log = tmp_path / "run.jsonl"
    own = {"backend": "nccl", "signals_measured_live": False, "schema_version": SCHEMA_VERSION, "model_type": "mine"}
    config = {**own, "sigma_sq_every_n_steps": 7, "seed": 3}
    with TrainingMonitor(model, optimizer, log=log, hardware=False, announce=False, config=config) as monitor:
        monitor.step(1.0)
    written = json.loads(log.read_text().splitlines()[0])["config"]
    assert (written["backend"], written["signals_measured_live"]) == ("torch", True)
    assert (written["model_type"], written["seed"]) == ("mine", 3) and "sigma_sq_every_n_steps" not in written
    (message,) = [record.getMessage() for record in caplog.records]
    assert "the monitor's own backend, signals_measured_live, sigma_sq_every_n_steps;" in message


def test_a_configuration_that_a_study_has_made_is_written_as_it_is(tmp_path: Path) -> None:
    model, optimizer = small_training()
    log = tmp_path / "run.jsonl"
    config = LogConfig(start_config("torch", "Linear", {}, None, 1) | {"backend": "zoo", "num_workers": 3})
    with TrainingMonitor(model, optimizer, log=log, hardware=False, announce=False, config=config) as monitor:
        monitor.step(1.0)
    start, record, _ = [json.loads(line) for line in log.read_text().splitlines() if '"SIGNAL_SOURCE"' not in line]
    assert start["config"] == config
    assert record["active_workers"] == [0, 1, 2]


class _Named(Sink):
    """Remembers what the run is called."""

    def start(self, config: Mapping[str, Any], *, resume_step: int | None) -> None:
        self.run = config["experiment_id"]

    def event(self, event: Mapping[str, Any]) -> None:
        pass


@pytest.mark.usefixtures("caplog")
def test_a_run_has_the_name_of_the_log_that_is_written(tmp_path: Path) -> None:
    sinks = [_Named(), _Named(), _Named()]
    for sink in sinks[:2]:
        with TrainingMonitor(*small_training(), log=tmp_path / "run.jsonl", hardware=False, sinks=[sink]) as monitor:
            monitor.step(1.0)
            state = monitor.state_dict()
    with TrainingMonitor(*small_training(), log=tmp_path / "run.jsonl", hardware=False, sinks=sinks[2:]) as monitor:
        monitor.load_state_dict(state)
        monitor.step(1.0)
    assert [sink.run for sink in sinks] == [f"{tmp_path.name}/{log}" for log in ("run", "run-2", "run-2")]


def test_a_hang_that_is_told_of_after_the_end_is_told_by_logging_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(Sinks([JsonlSink(tmp_path / "run.jsonl")]), {}, workers=1)
    recorder.start(None)
    recorder.close()
    with caplog.at_level(logging.WARNING, "rmetric"):
        recorder.now({"event": "HANG", "step": 3, "message": "Step 3: no progress."})
    assert [record.getMessage() for record in caplog.records] == ["R-Metric: Step 3: no progress."]
