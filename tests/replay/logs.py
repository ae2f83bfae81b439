"""Logs for the tests of the replay: made ones, and where the samples lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmetric.detectors import online_detectors
from rmetric.log_writer import encode_event, encode_metrics, to_log_precision
from rmetric.measurements import VERDICTS
from rmetric.metric import RMetric
from rmetric.records import Observations, fresh_evaluations, held
from rmetric.replay import PlotCurves, Replay, replay_log
from rmetric.signals import HardwareFailureRate, ValidationDrift

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
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
    lines += [(at, 1, line) for at, line in zip(step.tolist(), metrics.splitlines(keepends=True), strict=True)]
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


def drawn(path: Path) -> tuple[Replay, PlotCurves]:
    """A replay, and its curves."""
    curves = PlotCurves()
    return replay_log(path, trace=curves), curves


def replayed(path: Path, **options: Any) -> tuple[Replay, dict[str, np.ndarray]]:
    parts: list[dict[str, np.ndarray]] = []
    replay = replay_log(path, sink=parts.append, **options)
    return replay, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
