"""Replay: the same numbers as the run that wrote the log, whatever the size of a chunk, and honest about the rest."""

from __future__ import annotations

import csv
import json
import math
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay_and_analyze_logs import main
from rmetric.detectors import online_detectors
from rmetric.errors import UserError
from rmetric.evaluation.protocols import episodes
from rmetric.metric import RMetric
from rmetric.records import (
    VERDICTS,
    Observations,
    encode_event,
    encode_metrics,
    fresh_evaluations,
    held,
    read_run,
    to_log_precision,
)
from rmetric.replay import AlertEpisodes, Replay, ReplaySettings, Series, Trace, parse_weights, replay_log
from rmetric.reporting.replay_report import CsvWriter, output_names, overview_text, replay_to_folder
from rmetric.signals import HardwareFailureRate, ValidationDrift

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
AUTHORS = sorted((SHARED / "authors_sample_logs").glob("*.jsonl"))
REAL = sorted((SHARED / "real_runs_sample").glob("*.jsonl"))
needs_authors_logs = pytest.mark.skipif(not AUTHORS, reason="the authors' sample logs are not part of the repository")
needs_real_runs = pytest.mark.skipif(not REAL, reason="the sample of real runs is not part of the repository")


def written_run(
    path: Path, records: int = 400, *, onset: int = 2000, failure: int | None = 3510, seed: int = 0
) -> Path:
    """A log as a run writes it: detectors see each record as the log has it, and their verdicts stand in the log."""
    rng = np.random.default_rng(seed)
    step = np.arange(1, records + 1) * 10
    validation = np.full(records, np.nan)
    validation[9::10] = to_log_precision(4.0 - 0.3 * np.log(step[9::10]) + 0.01 * rng.normal(size=records // 10))
    validation = held(validation)
    validation[300:310] = np.inf
    drift, estimator = np.full(records, np.nan), ValidationDrift()
    for index in np.flatnonzero(fresh_evaluations(validation)):
        drift[index] = estimator.update(float(validation[index]))
    columns = {
        "training_loss": to_log_precision(4.0 - 0.3 * np.log(step) + 0.02 * rng.normal(size=records)),
        "validation_loss": validation,
        "grad_norm": to_log_precision(np.exp(rng.normal(size=records)) * np.where(step > onset, 20, 1)),
        "step_time_s": to_log_precision(5 + 0.1 * rng.random(records)),
        "sigma_sq": to_log_precision(0.01 * np.exp(rng.normal(size=records))),
        "delta_l": held(to_log_precision(drift)),
    }
    columns["grad_norm"][250] = np.inf
    hardware_steps = np.sort(rng.integers(500, step[-1], size=70))
    times_s = to_log_precision(5.05 * hardware_steps)
    rate = HardwareFailureRate()
    rates = [rate.value]
    for time_s in times_s.tolist():
        rate.update(time_s)
        rates.append(rate.value)
    columns["lambda"] = to_log_precision(np.array(rates)[np.searchsorted(hardware_steps, step, side="right")])
    observations = Observations(step, columns)
    explained = RMetric.paper().extend(columns["lambda"], columns["sigma_sq"], columns["delta_l"])
    alerts: dict[str, int] = {}
    for name, detector in online_detectors().items():
        above = np.flatnonzero(detector.score_run(observations) > detector.threshold)
        if len(above):
            alerts[name] = int(step[above[0]])
    norms = {name: getattr(explained, name) for name in VERDICTS if name != "r_metric"}
    floats = {
        **columns,
        **{name: to_log_precision(values) for name, values in {**norms, "r_metric": explained.r}.items()},
    }
    so_far = [{name: first for name, first in alerts.items() if first <= at} for at in step.tolist()]
    lines: list[tuple[int, int, bytes]] = []
    for at, time_s in zip(hardware_steps.tolist(), times_s.tolist(), strict=True):
        lines.append(
            (at, 0, encode_event({"event": "HARDWARE_EVENT", "step": at, "time_s": time_s, "component": "NIC"}))
        )
    lines.append((onset, 0, encode_event({"event": "FAULT_INJECTED", "step": onset, "fault": "LR_SPIKE"})))
    metrics = encode_metrics(step, floats, {"alerts": so_far, "active_workers": [[0, 1]] * records})
    lines += [(at, 1, line) for at, line in zip(step.tolist(), metrics, strict=True)]
    lines.sort(key=lambda line: line[:2])
    config = {
        "schema_version": 1,
        "model_type": "tiny",
        "total_training_steps": records * 10,
        "fault_injection": {"type": "LR_SPIKE", "severity": "high"},
        "r_metric_weights": {"w1_lambda": 0.1, "w2_sigma_sq": 0.45, "w3_delta_l": 0.7},
        "alert_thresholds": {"r_metric": 0.57},
    }
    end = {"event": "EXPERIMENT_SUCCESS", "step": records * 10}
    if failure is not None:
        end = {"event": "EXPERIMENT_FAILURE", "step": failure, "reason": "DIVERGED"}
    head = encode_event({"event": "EXPERIMENT_START", "config": config})
    path.write_bytes(b"".join([head, *(line for _, _, line in lines), encode_event(end)]))
    return path


def replayed(path: Path, **options: Any) -> tuple[Replay, dict[str, np.ndarray]]:
    parts: list[dict[str, np.ndarray]] = []
    replay = replay_log(path, sink=parts.append, **options)
    return replay, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return written_run(tmp_path / "run.jsonl")


# --- as written -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_replay_gives_exactly_the_r_and_the_alerts_that_the_run_wrote(tmp_path: Path, seed: int) -> None:
    path = written_run(tmp_path / "run.jsonl", seed=seed)
    replay, columns = replayed(path)
    run = read_run(path)
    assert to_log_precision(columns["r_metric"]).tolist() == run.verdicts["r_metric"].tolist()
    assert replay.alerts == run.alerts
    assert replay.alerts_agree is True
    for name in (*VERDICTS, "delta_l", "lambda"):
        assert replay.agreement[name].records > 0
        assert replay.agreement[name].max_difference == 0.0
    assert replay.signals == {
        "lambda": "recomputed from HARDWARE_EVENT",
        "sigma_sq": "as logged",
        "delta_l": "recomputed from validation_loss",
    }


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


@pytest.mark.parametrize("chunk_records", [1, 7, 64])
def test_the_size_of_a_chunk_changes_no_number(log: Path, chunk_records: int) -> None:
    whole, expected = replayed(log, chunk_records=10**6)
    small, columns = replayed(log, chunk_records=chunk_records)
    assert small.to_dict() == whole.to_dict()
    for name, values in expected.items():
        assert np.array_equal(columns[name], values, equal_nan=values.dtype == np.float64), name


@needs_real_runs
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_the_size_of_a_chunk_changes_no_number_on_real_runs(path: Path) -> None:
    whole, expected = replayed(path, chunk_records=10**6)
    small, columns = replayed(path, chunk_records=7)
    assert small.to_dict() == whole.to_dict()
    assert np.array_equal(columns["r_metric"], expected["r_metric"])


@given(st.lists(st.tuples(st.integers(1, 60), st.booleans()), min_size=1, max_size=60), st.integers(1, 9))
def test_alert_episodes_are_those_of_the_strict_protocol(rows: list[tuple[int, bool]], size: int) -> None:
    steps = np.cumsum([gap for gap, _ in rows])
    above = np.array([alert for _, alert in rows])
    merged = AlertEpisodes()
    for start in range(0, len(steps), size):
        merged.extend(steps[start : start + size], above[start : start + size])
    assert merged.begins == steps[episodes(steps, above)].tolist()


# --- other people's logs --------------------------------------------------------------------------------------------


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


@needs_real_runs
def test_real_runs_say_that_no_hardware_event_is_in_them() -> None:
    replays = [replay_log(path) for path in REAL]
    assert len(replays) == 16
    assert {replay.signals["lambda"] for replay in replays} == {"not in the log (counts as 0)"}
    assert {replay.outcome for replay in replays} == {"clean", "failed", "recovered", "censored"}
    assert all(replay.damaged == 0 for replay in replays)


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


# --- how the run ended ----------------------------------------------------------------------------------------------


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


def test_an_alert_after_the_failure_is_no_lead() -> None:
    replay = Replay(name="x", source="x", format="csv", failure_step=100, onset=50, alerts={"r_metric": 200})
    assert replay.lead_paper is None
    assert replay.usable is False


def test_a_control_run_has_no_onset(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    start = {"event": "EXPERIMENT_START", "config": {"fault_injection": {"type": "NONE", "params": None}}}
    end = {"event": "EXPERIMENT_SUCCESS", "step": 1}
    path.write_bytes(b"".join(map(encode_event, [start, {"event": "METRICS", "step": 1, "training_loss": 1.0}, end])))
    replay = replay_log(path)
    assert (replay.fault, replay.onset, replay.outcome) == ("NONE", None, "clean")


# --- settings -------------------------------------------------------------------------------------------------------


def test_settings_say_what_is_wrong_with_them() -> None:
    with pytest.raises(UserError, match="did you mean 'paper-case-study'"):
        ReplaySettings(preset="paper-case-studdy")
    with pytest.raises(UserError, match="at least 0"):
        ReplaySettings(weights=(-1.0, 0.0, 0.0))


@pytest.mark.parametrize("text", ["1,2", "a,b,c", "1,2,nan", "1,2,-3", ""])
def test_weights_must_be_three_numbers(text: str) -> None:
    with pytest.raises(ValueError, match=r"three finite numbers|could not convert"):
        parse_weights(text)


@pytest.mark.parametrize(
    "names",
    [
        ("w1_lambda", "w2_sigma_sq", "w3_delta_l"),
        ("lambda", "sigma_sq", "delta_l"),
        ("lambda", "sigma_squared", "delta_l"),
    ],
)
def test_logged_weights_are_found_under_every_name_the_authors_gave_them(names: tuple[str, str, str]) -> None:
    config = {"r_metric_weights": dict(zip(names, (0.0, 0.5, 0.78), strict=True)), "r_metric_alert_threshold": 0.6}
    metric, notes = ReplaySettings(preset="logged").metric(config)
    assert (tuple(metric.weights), metric.threshold, notes) == ((0.0, 0.5, 0.78), 0.6, [])
    metric, _ = ReplaySettings(preset="logged", threshold=0.9, weights=(1, 1, 1)).metric(config)
    assert (tuple(metric.weights), metric.threshold) == ((1, 1, 1), 0.9)


def test_a_log_without_weights_says_that_the_paper_s_are_used() -> None:
    metric, notes = ReplaySettings(preset="logged").metric({"seed": 1})
    assert metric.weights == RMetric.paper().weights
    assert notes == ["the log states no weights and no threshold; the paper's are used"]


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_table_cell_tells_missing_from_not_finite(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    with open(path, "wb") as file:
        writer = CsvWriter(file)
        for _ in range(2):
            writer.write({"a": np.array([1, 2]), "b": np.array([np.nan, np.inf]), "c": np.array([True, False])})
    assert path.read_text() == "a,b,c\n1,,1\n2,inf,0\n1,,1\n2,inf,0\n"


def test_output_names_never_meet_each_other_the_overview_or_an_input(tmp_path: Path) -> None:
    logs = [
        tmp_path / "a" / "run.jsonl",
        tmp_path / "b" / "RUN.jsonl",
        tmp_path / "summary.jsonl",
        tmp_path / "out" / "t.csv",
    ]
    names = output_names([*logs, tmp_path / "t.jsonl", tmp_path / "model" / "trainer_state.json"], tmp_path / "out")
    assert names == ["run", "RUN-2", "summary-2", "t-2", "t-3", "model"]


@given(st.integers(1, 400), st.integers(1, 50), st.integers(0, 2**32))
def test_a_thinned_curve_keeps_its_extremes_and_its_order(points: int, buckets: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=points)
    steps = np.cumsum(rng.integers(1, 5, size=points))
    curve = Series(buckets)
    for part_steps, part in zip(np.array_split(steps, 7), np.array_split(values, 7), strict=True):
        curve.extend(part_steps, part)
    assert len(curve.values) <= 2 * buckets + 2
    assert curve.values.min() == values.min()
    assert curve.values.max() == values.max()
    assert all(a < b for a, b in pairwise(curve.steps.tolist()))


def test_the_trace_of_a_long_log_is_bounded(tmp_path: Path) -> None:
    trace = Trace()
    for start in range(0, 200_000, 20_000):
        n = 20_000
        columns: dict[str, Any] = {name: np.full(n, np.inf) for name in ("training_loss", "validation_loss", *VERDICTS)}
        columns["r_metric"] = np.random.default_rng(start).random(n)
        trace.extend({"step": np.arange(start, start + n), **columns}, np.ones(n, dtype=bool))
    assert len(trace.series["r_metric"].values) <= 3002
    assert len(trace.non_finite_steps) == 200


def test_the_files_of_a_replay(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    replay = replay_to_folder(log, "run", out)
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


def test_a_name_in_a_log_cannot_break_the_overview_or_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    evil = "a|b\u001b[31m\nc\ud800" + "x" * 10_000
    lines = [
        {"event": "EXPERIMENT_START", "config": {"fault_injection": {"type": evil}, "model_type": evil}},
        {"event": "METRICS", "step": 1, "training_loss": 1.0, "alerts": {evil: 1}},
        {"event": "EXPERIMENT_FAILURE", "step": 1, "reason": evil},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    replay = replay_to_folder(path, "run", tmp_path)
    text = overview_text([replay])
    assert "\u001b" not in text
    assert "a\\|b" in text
    assert len(replay.reason) <= 200


# --- the script -----------------------------------------------------------------------------------------------------


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
        "run.csv", "run.png", "run.summary.json", "run-2.csv", "run-2.png", "run-2.summary.json",
        "empty.summary.json", "summary.csv", "summary.md",
    }  # fmt: skip
    assert all((out / f"{name}.png").read_bytes().startswith(b"\x89PNG") for name in ("run", "run-2"))
    captured = capsys.readouterr()
    assert "| run-2 " in captured.out
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


def test_the_script_refuses_a_file_where_the_output_folder_is_due(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(log), "--out", str(log)]) == 2
    assert "is a file where a folder is due" in capsys.readouterr().err


def test_a_log_in_the_output_folder_is_not_overwritten(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    content = "step,loss\n1,2.0\n2,1.5\n"
    table.write_text(content)
    for _ in range(2):
        assert main([str(table), "--out", str(tmp_path), "--no-plot"]) == 0
    assert table.read_text() == content
    assert (tmp_path / "t-2.csv").exists()
