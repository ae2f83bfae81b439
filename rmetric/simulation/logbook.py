"""From simulated steps to the log: summarise steps to records, compute signals, consult detectors, write lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rmetric import __version__
from rmetric.detectors import RMetricDetector, StreamingDetector, first_alert, online_detectors
from rmetric.faults import NO_FAULT, HardwareEvent
from rmetric.log_writer import SCHEMA_VERSION, encode_event, encode_metrics, terminal_event, to_log_precision
from rmetric.metric import RValue
from rmetric.records import Event, Observations
from rmetric.signals import HardwareFailureRate, ValidationDrift, event_worker
from rmetric.simulation.simulator import Traces
from rmetric.simulation.spec import RunSpec

USD_PER_ACCELERATOR_HOUR = 2.50
"""As in the paper."""

FloatsRN = NDArray[np.float64]


class Verdict(Protocol):
    """How a run ended, as :class:`rmetric.evaluation.ground_truth.Outcome` states it."""

    @property
    def kind(self) -> str: ...
    @property
    def failure_step(self) -> int | None: ...
    @property
    def reason(self) -> str | None: ...


@dataclass(frozen=True)
class RunLog:
    """One finished log."""

    name: str
    """File name without its ending."""
    content: bytes
    outcome: Verdict
    onset: int | None
    alerts: dict[str, int]
    """Detector → step of its first alert."""
    records: int


def write_logs(traces: Traces, outcomes: Sequence[Verdict]) -> list[RunLog]:
    """The logs of a batch. A log ends where its run fails: what a failed run would still do is of no use to anybody."""
    detectors = online_detectors()
    ends = [outcome.failure_step or spec.steps for outcome, spec in zip(outcomes, traces.specs, strict=True)]
    summary = _Summary(traces, ends)
    return [_log(traces, row, outcome, summary, detectors) for row, outcome in enumerate(outcomes)]


class _Summary:
    """Records of a batch: one column for each step on the grid, and a last one for an end that lies off the grid."""

    def __init__(self, traces: Traces, ends: Sequence[int]) -> None:
        spec = traces.specs[0]
        grid = np.arange(spec.log_every, spec.steps + 1, spec.log_every)
        if grid[-1] != spec.steps:
            grid = np.append(grid, spec.steps)
        self.grid = grid
        self.ends = np.asarray(ends)
        self.full = np.searchsorted(grid, self.ends, side="right")
        """Number of grid records of each run."""
        self.off_grid = ~np.isin(self.ends, grid)
        self.columns = {
            "training_loss": self._reduce(traces.training_loss, np.add, mean=True),
            "learning_rate": self._last(traces.learning_rate),
            "grad_norm": self._reduce(traces.grad_norm, np.maximum),
            "update_rms": self._reduce(traces.update_rms, np.maximum),
            "step_time_s": self._reduce(traces.step_time_s, np.add, mean=True),
            "step_time_max_s": self._reduce(traces.step_time_s, np.maximum),
            "sigma_sq": self._reduce(traces.sigma_sq, np.maximum),
            "non_finite_count": self._reduce(traces.non_finite_count, np.add),
        }
        self.columns = {name: to_log_precision(_saturated(values)) for name, values in self.columns.items()}
        self.validation = to_log_precision(_saturated(traces.validation_loss))
        self.time_s = to_log_precision(np.cumsum(traces.step_time_s, axis=1))
        self.reported = {name: self._last(values) for name, values in traces.reported.items()}

    def _reduce(self, values_RT: NDArray[np.float64], reduce: np.ufunc, mean: bool = False) -> FloatsRN:
        starts = np.concatenate([[0], self.grid[:-1]])
        on_grid = reduce.reduceat(values_RT, starts, axis=1)
        if mean:
            on_grid = on_grid / np.diff(self.grid, prepend=0)
        last = np.full(len(values_RT), np.nan)
        for row in np.flatnonzero(self.off_grid):
            start = self.grid[self.full[row] - 1] if self.full[row] else 0
            steps = values_RT[row, start : self.ends[row]]
            last[row] = reduce.reduce(steps) / (len(steps) if mean else 1)
        return np.column_stack([on_grid, last])

    def _last(self, values_RT: NDArray[np.float64]) -> FloatsRN:
        return np.column_stack([values_RT[:, self.grid - 1], values_RT[np.arange(len(values_RT)), self.ends - 1]])

    def of_run(self, row: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Steps of a run's records, and the columns they stand in."""
        which = np.arange(self.full[row])
        if self.off_grid[row]:
            which = np.append(which, len(self.grid))
        return np.append(self.grid, self.ends[row])[which], which


def _saturated(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Non-finite values as the in-memory convention has them; here every value was measured."""
    return np.where(np.isfinite(values), values, np.inf)


def _log(
    traces: Traces, row: int, outcome: Verdict, summary: _Summary, detectors: dict[str, StreamingDetector]
) -> RunLog:
    spec = traces.specs[row]
    step, which = summary.of_run(row)
    columns = {name: values[row, which] for name, values in summary.columns.items()}
    validation, drift = _evaluations(spec, step, summary.validation[row])
    hardware = [event for event in traces.hardware[row] if event.step <= summary.ends[row]]
    times_s = [float(summary.time_s[row, event.step - 1]) for event in hardware]
    columns["lambda"] = _hardware_failure_rate(step, [event.step for event in hardware], times_s)
    columns["hardware_events"] = _events_reported(step, [event.step for event in hardware])
    columns["event_worker"] = _event_worker(step, hardware)
    observations = Observations(step, {**columns, "validation_loss": validation, "delta_l": drift})
    explained, alerts, alert_events = _consult(observations, detectors)

    events: list[tuple[int, int, bytes]] = []
    for event, time_s in zip(hardware, times_s, strict=True):
        hardware_event = {
            "event": "HARDWARE_EVENT", "step": event.step, "time_s": time_s, "component": event.component,
            "worker": event.worker, "kind": event.kind,
        }  # fmt: skip
        events.append((event.step, 0, encode_event(hardware_event)))
    events += [(int(event["step"]), 0, encode_event(event)) for event in _fault_events(traces, row, summary.ends[row])]
    events += [(int(event["step"]), 2, encode_event(event)) for event in alert_events]
    lines = encode_metrics(step, _floats(observations, explained), _states(traces, row, outcome, summary, alerts))
    events += [(at, 1, line) for at, line in zip(step.tolist(), lines, strict=True)]
    events.sort(key=lambda item: item[:2])
    start = encode_event({"event": "EXPERIMENT_START", "config": _config(spec, traces.onset[row], detectors)})
    end = encode_event(terminal_event(outcome.kind, outcome.failure_step, outcome.reason, spec.steps))
    content = b"".join([start, *(line for _, _, line in events), end])
    return RunLog(spec.experiment_id, content, outcome, traces.onset[row], alerts, len(step))


def _evaluations(
    spec: RunSpec, step: NDArray[np.int64], validation: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Latest known validation loss and ΔL at each record, each (n,); NaN before the first."""
    estimator = ValidationDrift()
    latest = step // spec.eval_every
    losses = validation[: latest[-1]]
    drifts = to_log_precision([estimator.update(loss) for loss in losses.tolist()])
    return np.append(np.nan, losses)[latest], np.append(np.nan, drifts)[latest]


def _hardware_failure_rate(step: NDArray[np.int64], at: list[int], times_s: list[float]) -> NDArray[np.float64]:
    """λ at each record, events per hour, (n,)."""
    estimator = HardwareFailureRate()
    values = [estimator.value]
    for time_s in times_s:
        estimator.update(time_s)
        values.append(estimator.value)
    return to_log_precision(np.array(values)[np.searchsorted(at, step, side="right")])


def _events_reported(step: NDArray[np.int64], at: list[int]) -> NDArray[np.float64]:
    """Hardware events of each record, (n,); NaN for none, which the log leaves out."""
    count = np.bincount(np.searchsorted(step, at), minlength=len(step)).astype(np.float64)
    return np.where(count > 0, count, np.nan)


def _event_worker(step: NDArray[np.int64], hardware: Sequence[HardwareEvent]) -> NDArray[np.float64]:
    """Who reported most events of each record, (n,); NaN where there was none."""
    found = np.full(len(step), np.nan)
    workers: dict[int, list[int]] = defaultdict(list)
    for event, record in zip(hardware, np.searchsorted(step, [event.step for event in hardware]).tolist(), strict=True):
        workers[record].append(event.worker)
    for record, reporting in workers.items():
        found[record] = event_worker(reporting)
    return found


def _consult(
    observations: Observations, detectors: dict[str, StreamingDetector]
) -> tuple[RValue, dict[str, int], list[Event]]:
    alerts: dict[str, int] = {}
    events: list[Event] = []
    explained: RValue | None = None
    for name, detector in detectors.items():
        if isinstance(detector, RMetricDetector) and name == RMetricDetector.name:
            explained = detector.fresh().extend_explained(observations)
            scores = np.asarray(explained.r)
        else:
            scores = detector.score_run(observations)
        step = first_alert(observations.step, scores, detector.threshold)
        if step is not None:
            alerts[name] = step
            score = float(scores[np.searchsorted(observations.step, step)])
            events.append({"event": "ALERT", "step": step, "detector": name, "score": score})
    assert explained is not None, "the R-Metric is one of the online detectors"
    return explained, alerts, events


def _floats(observations: Observations, explained: RValue) -> dict[str, NDArray[np.float64]]:
    order = (
        "training_loss", "validation_loss", "learning_rate", "grad_norm", "update_rms", "step_time_s",
        "step_time_max_s", "lambda", "sigma_sq", "delta_l",
    )  # fmt: skip
    floats = {name: observations[name] for name in order}
    count = observations["non_finite_count"]
    if count.any():
        floats["non_finite_count"] = np.where(count > 0, count, np.nan)
    for name in ("hardware_events", "event_worker"):
        if not np.isnan(observations[name]).all():
            floats[name] = observations[name]
    floats |= {
        "lambda_norm": to_log_precision(explained.lambda_norm),
        "sigma_sq_norm": to_log_precision(explained.sigma_sq_norm),
        "delta_l_norm": to_log_precision(explained.delta_l_norm),
        "r_metric": to_log_precision(explained.r),
    }
    return floats


def _states(
    traces: Traces, row: int, outcome: Verdict, summary: _Summary, alerts: dict[str, int]
) -> dict[str, Sequence[Any]]:
    """The fault state under the authors' names, one value a record; what concerns experts only where there are any."""
    spec = traces.specs[row]
    step, which = summary.of_run(row)
    workers = list(range(spec.profile.workers))
    lost_at = traces.worker_lost_step[row] or spec.steps + 1
    remaining = [worker for worker in workers if worker != traces.lost_worker[row]]
    reported = {name: values[row, which] for name, values in summary.reported.items()}
    experts = {
        "router_imbalance_factor": reported["router_imbalance_factor"].tolist(),
        "failed_experts": [list(range(int(number))) for number in reported["failed_experts"].tolist()],
    }
    is_nan = ~np.isfinite(summary.columns["training_loss"][row, which])
    stopped = outcome.reason in ("NAN_LOSS", "WORKER_LOST")
    return {
        "alerts": _alerts_so_far(step, alerts),
        "active_workers": [workers if at < lost_at else remaining for at in step.tolist()],
        **(experts if spec.profile.experts else {}),
        "force_gqa_mismatch": (reported["force_gqa_mismatch"] > 0).tolist(),
        "force_rms_norm_error": (reported["force_rms_norm_error"] > 0).tolist(),
        "is_nan": is_nan.tolist(),
        "is_crashed": [stopped and at == outcome.failure_step for at in step.tolist()],
    }


def _alerts_so_far(step: NDArray[np.int64], alerts: dict[str, int]) -> list[dict[str, int]]:
    ordered = sorted(alerts.items(), key=lambda item: item[1])
    states = [dict(ordered[:count]) for count in range(len(ordered) + 1)]
    return [states[count] for count in np.searchsorted([at for _, at in ordered], step, side="right")]


def _fault_events(traces: Traces, row: int, end: int) -> list[Event]:
    spec, onset, cleared = traces.specs[row], traces.onset[row], traces.cleared[row]
    events: list[Event] = []
    if onset is not None and onset <= end:
        details = f"{spec.fault} ({spec.severity}) begins"
        events.append({"event": "FAULT_INJECTED", "step": onset, "fault": spec.fault, "details": details})
    if cleared is not None and cleared <= end:
        events.append({"event": "FAULT_CLEARED", "step": cleared, "fault": spec.fault})
    return events


def _config(spec: RunSpec, onset: int | None, detectors: dict[str, StreamingDetector]) -> dict[str, Any]:
    """The authors' layout, extended. Nothing here depends on clock, path or host."""
    metric = RMetricDetector()
    profile = spec.profile
    fault = spec.make_fault()
    injection: dict[str, Any] = {
        "type": spec.fault,
        "severity": None if spec.fault == NO_FAULT else spec.severity,
        "trigger_step": onset,
        "params": fault.parameters if fault else {},
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "package_version": __version__,
        "backend": "simulator",
        "experiment_id": spec.experiment_id,
        "model_type": profile.model_type,
        "architecture": spec.architecture,
        "dataset": "none (simulated)",
        "seed": spec.seed,
        "repetition": spec.repetition,
        "num_workers": profile.workers,
        "total_training_steps": spec.steps,
        "eval_every_n_steps": spec.eval_every,
        "log_every_n_steps": spec.log_every,
        "step_time_s": profile.step_time_s,
        "usd_per_accelerator_hour": USD_PER_ACCELERATOR_HOUR,
        "fault_injection": injection,
        "r_metric_weights": {
            "w1_lambda": metric.weights[0],
            "w2_sigma_sq": metric.weights[1],
            "w3_delta_l": metric.weights[2],
        },
        "alert_thresholds": {name: detector.threshold for name, detector in detectors.items()},
    }
