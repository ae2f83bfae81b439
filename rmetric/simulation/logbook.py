"""Write the log of each simulated run: summarise its steps, consult the detectors, encode the lines."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric import __version__
from rmetric.batches import COLUMNS
from rmetric.detectors import RMetricDetector, StreamingDetector, first_alert, online_detectors
from rmetric.evaluation.ground_truth import Outcome, excess, judge_runs
from rmetric.faults import NO_FAULT
from rmetric.log_reader import Chunk
from rmetric.log_writer import (
    SCHEMA_VERSION,
    alerts_so_far,
    as_logged,
    encode_metrics,
    injection_entry,
    terminal_event,
    to_log_precision,
    weights_entry,
)
from rmetric.measurements import MEASUREMENTS
from rmetric.records import NAN_LOSS, START, WORKER_LOST, Event, Observations
from rmetric.registry import plugin_errors
from rmetric.simulation.simulator import Judged, Traces, TrainingSimulator
from rmetric.simulation.spec import RunSpec
from rmetric.simulation.summary import RunRecords, summarise

USD_PER_ACCELERATOR_HOUR = 2.50
"""Price in the paper."""


@dataclass(frozen=True)
class RunLog:
    """One finished log."""

    name: str
    """File name without its ending."""
    outcome: Outcome
    onset: int | None
    alerts: dict[str, int]
    """Detector → step of its first alert."""
    step: NDArray[np.int64]
    """Of each record, shape (n,)."""
    numbers: dict[str, NDArray[np.float64]]
    """Log name → values of shape (n,), at log precision; NaN: not measured, infinity: not finite."""
    states: dict[str, Sequence[Any] | NDArray[Any]]
    """What else a record says, by log name, one value a record."""
    events: list[tuple[int, Event]]
    """All other events in their order, each with the index (0 to n) of the record that it precedes."""

    @property
    def records(self) -> int:
        """Number of METRICS records."""
        return len(self.step)

    @property
    def content(self) -> bytes:
        """The log as JSON lines; encoded at each call, so that a batch does not hold those of all its runs."""
        return encode_metrics(self.step, self.numbers, self.states, self.events)

    def chunk(self) -> Chunk:
        """What a reader makes of :attr:`content`, without writing and reading it."""
        measured = {name: self.numbers[name] for name in COLUMNS if name in self.numbers}
        return Chunk(
            step=self.step,
            columns={name: values for name, values in measured.items() if not np.isnan(values).all()},
            events=[(index, as_logged(event)) for index, event in self.events],
            alerts=self.states["alerts"][-1] if self.records else {},
        )


def write_logs(traces: Traces, outcomes: Sequence[Outcome]) -> list[RunLog]:
    """The logs of a batch. A log ends where its run fails: what a failed run would still do is of no use to anybody."""
    detectors = online_detectors()
    records = summarise(traces, _ends(traces, outcomes))
    return [
        _log(traces, row, outcome, of_run, detectors)
        for row, (outcome, of_run) in enumerate(zip(outcomes, records, strict=True))
    ]


def _log(
    traces: Traces, row: int, outcome: Outcome, records: RunRecords, detectors: Mapping[str, StreamingDetector]
) -> RunLog:
    spec, onset, observations = traces.specs[row], traces.onset[row], records.observations
    with plugin_errors(spec.experiment_id):
        verdicts, alerts = _consult(observations, detectors)
    first_alerts = {str(event["detector"]): int(event["step"]) for event in alerts}
    end = outcome.failure_step or spec.steps
    events = [*_hardware_events(records), *_fault_events(spec, onset, traces.cleared[row], end), *alerts]
    start = {"event": START, "config": _config(spec, onset, detectors)}
    over = terminal_event(outcome.kind, outcome.failure_step, outcome.reason, spec.steps)
    return RunLog(
        name=spec.experiment_id,
        outcome=outcome,
        onset=onset,
        alerts=first_alerts,
        step=observations.step,
        numbers={name: observations[name] for name in MEASUREMENTS if observations.has(name)} | verdicts,
        states=_states(traces, row, outcome, records, first_alerts),
        events=[(0, start), *_placed(observations.step, events), (len(observations), over)],
    )


def _placed(step: NDArray[np.int64], events: Iterable[Event]) -> Iterator[tuple[int, Event]]:
    """Events in order, each with the index of the record that it precedes: those of its own step, but for alerts."""
    steps = step.tolist()
    for event in sorted(events, key=lambda event: (event["step"], event["event"] == "ALERT")):
        precedes = bisect_right if event["event"] == "ALERT" else bisect_left
        yield precedes(steps, event["step"]), event


def _consult(
    observations: Observations, detectors: Mapping[str, StreamingDetector]
) -> tuple[dict[str, NDArray[np.float64]], list[Event]]:
    """The values of the R-Metric by log name, and an ALERT event where each detector first raises one."""
    verdicts: dict[str, NDArray[np.float64]] = {}
    alerts: list[Event] = []
    for name, detector in detectors.items():
        if isinstance(detector, RMetricDetector) and name == RMetricDetector.name:
            explained = detector.fresh().extend_explained(observations)
            named = explained.by_log_name()
            verdicts = dict(zip(named, to_log_precision(np.array([*named.values()])), strict=True))
            scores = np.asarray(explained.r)
        else:
            scores = detector.score_run(observations)
        step = first_alert(observations.step, scores, detector.threshold)
        if step is not None:
            score = float(scores[np.searchsorted(observations.step, step)])
            alerts.append({"event": "ALERT", "step": step, "detector": name, "score": score})
    assert verdicts, "the R-Metric is one of the online detectors"
    return verdicts, alerts


def _hardware_events(records: RunRecords) -> Iterator[Event]:
    for event, time_s in records.hardware:
        yield {
            "event": "HARDWARE_EVENT", "step": event.step, "time_s": time_s, "component": event.component,
            "worker": event.worker, "kind": event.kind,
        }  # fmt: skip


def _fault_events(spec: RunSpec, onset: int | None, cleared: int | None, end: int) -> Iterator[Event]:
    if onset is not None and onset <= end:
        details = f"{spec.fault} ({spec.severity}) begins"
        yield {"event": "FAULT_INJECTED", "step": onset, "fault": spec.fault, "details": details}
    if cleared is not None and cleared <= end:
        yield {"event": "FAULT_CLEARED", "step": cleared, "fault": spec.fault}


def _states(
    traces: Traces, row: int, outcome: Outcome, records: RunRecords, alerts: Mapping[str, int]
) -> dict[str, Sequence[Any] | NDArray[Any]]:
    """The fault state under the authors' names, one value a record; what concerns experts only where there are any."""
    spec, reported, step = traces.specs[row], records.reported, records.observations.step
    workers = list(range(spec.profile.workers))
    whole = bisect_left(step, traces.worker_lost_step[row] or spec.steps + 1)
    remaining = [worker for worker in workers if worker != traces.lost_worker[row]]
    failed = [list(range(number)) for number in range(spec.profile.experts + 1)]
    experts = {
        "router_imbalance_factor": reported["router_imbalance_factor"],
        "failed_experts": [failed[number] for number in reported["failed_experts"].astype(int).tolist()],
    }
    stopped = outcome.reason in (NAN_LOSS, WORKER_LOST)
    return {
        "alerts": alerts_so_far(step, alerts),
        "active_workers": [workers] * whole + [remaining] * (len(step) - whole),
        **(experts if spec.profile.experts else {}),
        "force_gqa_mismatch": reported["force_gqa_mismatch"] > 0,
        "force_rms_norm_error": reported["force_rms_norm_error"] > 0,
        "is_nan": np.isinf(records.observations["training_loss"]),
        "is_crashed": stopped & (step == outcome.failure_step),
    }


def _config(spec: RunSpec, onset: int | None, detectors: Mapping[str, StreamingDetector]) -> dict[str, Any]:
    """The authors' layout, extended. Nothing here depends on clock, path or host."""
    metric = RMetricDetector()
    profile = spec.profile
    fault = spec.make_fault()
    severity = None if spec.fault == NO_FAULT else spec.severity
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
        "fault_injection": injection_entry(spec.fault, severity, onset, fault.parameters if fault else {}),
        **({"as_published": spec.conditions.names} if spec.conditions.names else {}),
        "r_metric_weights": weights_entry(metric.weights),
        "alert_thresholds": {name: detector.threshold for name, detector in detectors.items()},
    }


def run_batch(specs: Sequence[RunSpec]) -> list[RunLog]:
    """Simulate runs of one architecture, judge each against its twin, and write their logs (in memory)."""
    batch = TrainingSimulator().begin(specs)
    outcomes = judge_traces(batch.judged)
    return write_logs(batch.observed(_ends(batch.judged, outcomes)), outcomes)


def _ends(runs: Judged, outcomes: Sequence[Outcome]) -> list[int]:
    return [outcome.failure_step or spec.steps for outcome, spec in zip(outcomes, runs.specs, strict=True)]


def judge_traces(traces: Judged) -> list[Outcome]:
    """Outcome of each run of a batch, by the rule of the ground truth."""
    steps = np.arange(1, traces.held_out.shape[1] + 1)
    above = excess(traces.held_out, traces.twin_held_out)
    if traces.specs[0].conditions.crash:  # the only failure that the author's files know
        above = np.zeros_like(above)
    return judge_runs(
        above,
        steps,
        non_finite_step=traces.non_finite_step,
        worker_lost_step=traces.worker_lost_step,
        faulty=[not spec.is_control for spec in traces.specs],
    )
