"""λ, σ² and ΔL out of a log: from what they are made of, or as logged."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmetric.log_reader import read_run
from rmetric.log_writer import encode_event, to_log_precision
from rmetric.replay import replay_log
from rmetric.signals import ValidationDrift
from tests.replay.logs import REAL, needs_real_runs, replayed


def test_raw_signals_come_out_bit_for_bit(log: Path) -> None:
    _, columns = replayed(log)
    run = read_run(log)
    for name in ("delta_l", "lambda", "sigma_sq"):
        assert np.array_equal(columns[name], run.observations[name], equal_nan=True)


def test_two_evaluations_with_the_same_loss_are_two(tmp_path: Path) -> None:
    drift = ValidationDrift()
    lines = []
    for step, loss in enumerate((3.0, 2.5, 2.5, 2.25), start=1):
        delta_l = drift.update(loss)
        record = {"event": "METRICS", "step": step, "validation_loss": loss}
        lines.append(encode_event(record if math.isnan(delta_l) else {**record, "delta_l": delta_l}))
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(lines))
    for chunk_records in (1, 100):
        replay, _ = replayed(path, chunk_records=chunk_records)
        assert replay.agreement["delta_l"].max_difference == 0.0


def test_a_signal_whose_raw_value_begins_later_is_normalised_from_then_on(tmp_path: Path) -> None:
    lines = [
        {"step": 1, "sigma_sq_norm": 0.25},
        {"step": 2, "sigma_sq_norm": 0.5, "sigma_sq": 1.0},
        {"step": 3, "sigma_sq": 3.0},
    ]
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(json.dumps({"event": "METRICS", **line}) for line in lines))
    _, columns = replayed(path)
    assert columns["sigma_sq_norm"].tolist() == [0.25, 0.0, 1.0]
    assert columns["r_metric"].tolist() == pytest.approx([0.45 * 0.25, 0.0, 0.45])


def test_a_hardware_event_without_a_time_gets_it_from_its_step(tmp_path: Path) -> None:
    def log_of(*events: dict[str, Any]) -> Path:
        path = tmp_path / "run.jsonl"
        path.write_bytes(b"".join(map(encode_event, events)))
        return path

    events: Sequence[dict[str, Any]] = [
        {"event": "METRICS", "step": 10, "step_time_s": 4.0},
        {"event": "HARDWARE_EVENT", "step": 15},
        {"event": "HARDWARE_EVENT", "step": 465},
        {"event": "METRICS", "step": 470, "step_time_s": 4.0},
    ]
    for chunk_records in (1, 2):
        _, columns = replayed(log_of(*events), chunk_records=chunk_records)
        assert columns["lambda"][1] == 2 * 3600 / (450 * 4.0)


def test_many_hardware_events_between_two_records_are_all_counted(tmp_path: Path) -> None:
    events = [{"event": "METRICS", "step": 1}]
    events += [{"event": "HARDWARE_EVENT", "step": 2, "time_s": 100.0 * k} for k in range(40)]
    events += [{"event": "METRICS", "step": 3}]
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(map(encode_event, events)))
    for chunk_records in (1, 3, 40, 41, 1000):
        _, columns = replayed(path, chunk_records=chunk_records)
        assert columns["lambda"][1] == to_log_precision(40 * 3600 / 3900)


@needs_real_runs
def test_real_runs_say_that_no_hardware_event_is_in_them() -> None:
    replays = [replay_log(path) for path in REAL]
    assert len(replays) == 16
    assert {replay.signals["lambda"] for replay in replays} == {"not in the log (counts as 0)"}
    assert {replay.outcome for replay in replays} == {"clean", "failed", "recovered", "censored"}
    assert all(replay.damaged == 0 for replay in replays)
