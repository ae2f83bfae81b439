"""Replay: the same numbers as the run that wrote the log, whatever the size of a chunk, and honest about the rest."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmetric.detectors import DEFAULT_DETECTORS
from rmetric.errors import UserError
from rmetric.log_reader import read_log
from rmetric.log_writer import encode_event, to_log_precision
from rmetric.measurements import VERDICTS
from rmetric.replay import Replayer, ReplaySettings, replay_log
from rmetric.replay.overview import overview_text
from tests.replay.logs import AUTHORS, REAL, needs_authors_logs, needs_real_runs, replayed, written_run


@pytest.mark.parametrize("seed", range(5))
def test_a_replay_gives_exactly_the_r_and_the_alerts_that_the_run_wrote(tmp_path: Path, seed: int) -> None:
    path = written_run(tmp_path / "run.jsonl", seed=seed)
    replay, columns = replayed(path)
    run = read_log(path)
    assert to_log_precision(columns["r_metric"]).tolist() == run.verdicts["r_metric"].tolist()
    consulted = {name: step for name, step in replay.alerts.items() if name not in DEFAULT_DETECTORS}
    assert consulted == run.alerts and replay.alerts_agree
    assert replay.alerts_agree is True
    for name in (*VERDICTS, "delta_l", "lambda"):
        assert replay.agreement[name].records > 0
        assert replay.agreement[name].max_difference == 0.0
    assert replay.signals == {
        "lambda": "recomputed from HARDWARE_EVENT",
        "sigma_sq": "as logged",
        "delta_l": "recomputed from validation_loss",
    }


def test_a_replayer_needs_no_settings() -> None:
    events = ((number, {"event": "METRICS", "step": number, "training_loss": 2.0}) for number in range(20))
    (columns,) = Replayer().run(events, lambda line, message: None)
    assert columns["step"].tolist() == [*range(20)]


def test_curves_go_into_what_can_take_them(log: Path) -> None:
    with pytest.raises(UserError, match=r"trace=True receives no curves; .* rmetric\.replay\.PlotCurves\(\)"):
        replay_log(log, trace=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("chunk_records", [1, 7, 64])
@pytest.mark.slow
def test_the_size_of_a_chunk_changes_no_number(log: Path, chunk_records: int) -> None:
    whole, expected = replayed(log, chunk_records=10**6)
    small, columns = replayed(log, chunk_records=chunk_records)
    assert small.to_dict() == whole.to_dict()
    for name, values in expected.items():
        assert np.array_equal(columns[name], values, equal_nan=values.dtype == np.float64), name


@pytest.mark.slow
@needs_real_runs
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_the_size_of_a_chunk_changes_no_number_on_real_runs(path: Path) -> None:
    whole, expected = replayed(path, chunk_records=10**6)
    small, columns = replayed(path, chunk_records=7)
    assert small.to_dict() == whole.to_dict()
    assert np.array_equal(columns["r_metric"], expected["r_metric"])


@needs_authors_logs
@pytest.mark.parametrize("path", AUTHORS, ids=lambda path: path.stem)
def test_the_authors_logs_are_replayed_with_what_they_hold(path: Path) -> None:
    replay, columns = replayed(path, settings=ReplaySettings(preset="logged"))
    assert replay.signals == {
        "lambda": "normalised value as logged",
        "sigma_sq": "normalised value as logged",
        "delta_l": "recomputed from validation_loss",
    }
    assert replay.weights == (0.0, 0.5, 0.78)
    assert replay.agreement["delta_l_norm"].max_difference < 1e-14
    assert replay.agreement["r_metric"].max_difference < 1e-14
    assert replay.alerts["r_metric"] == replay.logged_alerts["r_metric"]  # type: ignore[index]
    assert np.isnan(columns["sigma_sq"]).all()


@needs_authors_logs
def test_no_alert_in_the_authors_logs_could_have_been_used() -> None:
    replays = {path.stem: replay_log(path) for path in AUTHORS}
    failed = [replay for replay in replays.values() if replay.outcome == "failed"]
    assert len(failed) == 2
    assert [replay.usable for replay in failed] == [False, False]
    assert {replay.lead_paper for replay in failed} == {2100, 0}
    assert any("weights 0, 0.5, 0.78" in note for replay in failed for note in replay.notes)


@needs_authors_logs
def test_the_authors_case_study_table_needs_no_mapping() -> None:
    replay, _ = replayed(AUTHORS[0].parent / "case_study_metrics.csv", settings=ReplaySettings(weights=(0, 0.52, 0.78)))
    assert replay.format == "csv"
    assert set(replay.signals.values()) == {"as logged"}
    assert replay.outcome == "not stated"
    assert not replay.complete
    assert replay.agreement["delta_l_norm"].agrees
    assert replay.first_alert == 30


def test_a_trainer_state_with_a_nan_alerts_nobody_by_silence(tmp_path: Path) -> None:
    entries: list[dict[str, Any]] = []
    for step in range(10, 401, 10):
        entries.append({"step": step, "loss": math.nan if step >= 300 else 2.0, "grad_norm": 1.0})
        entries.append({"step": step, "eval_loss": math.nan if step >= 300 else 2.0 - step / 1e3})
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": entries}))
    replay, columns = replayed(path)
    assert replay.format == "trainer_state"
    assert replay.records == 40
    assert np.isinf(columns["training_loss"][29:]).all()
    assert np.isinf(columns["delta_l"][29:]).all()
    assert replay.alerts["loss_spike"] == 300
    assert (columns["delta_l_norm"][29:] == 1.0).all()


def test_a_generic_log_whose_evaluations_stand_alone_holds_them_over_chunks(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [f"{step},{3 - step / 100},{3 - step / 100 if step % 10 == 0 else ''}" for step in range(1, 101)]
    path.write_text("step,loss,val_loss\n" + "\n".join(rows) + "\n")
    whole, expected = replayed(path)
    small, columns = replayed(path, chunk_records=3)
    assert small.to_dict() == whole.to_dict()
    assert np.array_equal(columns["validation_loss"], expected["validation_loss"], equal_nan=True)
    assert not np.isnan(columns["validation_loss"][9:]).any()


def test_a_log_without_a_last_line_is_incomplete_and_no_success(log: Path) -> None:
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    replay = replay_log(log)
    assert replay.outcome == "incomplete"
    assert not replay.complete
    assert replay.usable is None
    assert "not a success" in overview_text([replay])


def test_lead_and_use_are_counted_apart(log: Path) -> None:
    replay = replay_log(log)
    assert (replay.fault, replay.severity, replay.onset, replay.failure_step) == ("LR_SPIKE", "high", 2000, 3510)
    assert replay.first_alert == replay.warning_step == 3010
    assert (replay.lead_paper, replay.usable) == (500, True)
    before_the_fault = replay_log(written_run(log, onset=3200))
    assert (before_the_fault.first_alert, before_the_fault.lead_paper) == (3010, 500)
    assert (before_the_fault.warning_step, before_the_fault.usable) == (None, False)


def test_a_control_run_has_no_onset(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    start = {"event": "EXPERIMENT_START", "config": {"fault_injection": {"type": "NONE", "params": None}}}
    end = {"event": "EXPERIMENT_SUCCESS", "step": 1}
    path.write_bytes(b"".join(map(encode_event, [start, {"event": "METRICS", "step": 1, "training_loss": 1.0}, end])))
    replay = replay_log(path)
    assert (replay.fault, replay.onset, replay.outcome) == ("NONE", None, "clean")
