"""Write the log of a live run: its events, in their order, to every sink."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rmetric import __version__
from rmetric.detectors import RMetricDetector
from rmetric.errors import LOGGER
from rmetric.log_writer import SCHEMA_VERSION, injection_entry, weights_entry, with_non_finite_named
from rmetric.measurements import MEASUREMENTS, Observation
from rmetric.monitor.alerts import note_of_change
from rmetric.monitor.changes import SettingChange
from rmetric.monitor.detector_set import Detections
from rmetric.monitor.estimators import FROZEN_RECORDS, Estimators
from rmetric.monitor.hardware import HardwareReport
from rmetric.monitor.pending_step import ArrivedStep
from rmetric.monitor.sinks import Announcer, JsonlSink, Sink, Sinks
from rmetric.records import VALIDATION, Event

TENSOR_NORMS_EVERY = 100
"""Steps between records of every tensor's gradient norm; at an alert they are recorded as well."""
OF_THE_MONITOR = frozenset(
    {"schema_version", "package_version", "backend", "log_every_n_steps", "sigma_sq_every_n_steps"}
    | {"signals_measured_live", "r_metric_weights", "alert_thresholds"}
)
"""Entries of a log's ``config`` that the monitor knows better than whoever has an entry of the same name."""


def namer(log: JsonlSink | None, trained: str) -> Callable[[], str]:
    """Tells the name of a run whose user has given none: of its log with its folder, else of what is trained, and when.

    The log's is final when that is open.

    >>> namer(JsonlSink("/data/lr-3e-4/run.jsonl"), "Linear")()
    'lr-3e-4/run'
    """
    named = f"{trained} {datetime.now():%Y-%m-%d %H:%M:%S}"
    return lambda: named if log is None else f"{log.path.parent.name}/{log.path.stem}"


def sinks_of(log: JsonlSink | None, announce: bool, others: Sequence[Sink], writes: bool) -> list[Sink]:
    """Destinations of a run's events: what people are told, its log, and others; none in a process that does not write.

    Raises :class:`UserError` for a log that cannot be written in one that does: the others may be on machines that have
    no such folder.
    """
    if not writes:
        return []
    if log is not None:
        log.check_writable()
    announcers = [Announcer(log)] if announce else []
    return [*announcers, *([log] if log is not None else []), *others]


class LogConfig(dict[str, Any]):
    """A log's ``config`` that a study has made, all of it: a monitor writes it as it is.

    Its ``num_workers`` are workers that train, be it that one process plays them.
    """


def start_config(
    backend: str,
    model_type: str,
    thresholds: Mapping[str, float],
    vocabulary: int | None,
    workers: int,
    record_every: int = 1,
    sigma_sq_every: int = 1,
) -> dict[str, Any]:
    """``config`` of EXPERIMENT_START, in the authors' layout, as far as it is known without the user.

    A log that does not say ``sigma_sq_every_n_steps`` has σ² of every step.
    """
    weights = RMetricDetector().weights
    return {
        "schema_version": SCHEMA_VERSION,
        "package_version": __version__,
        "backend": backend,
        "model_type": model_type,
        "num_workers": workers,
        "log_every_n_steps": record_every,
        "vocabulary": vocabulary,
        "signals_measured_live": True,
        "fault_injection": injection_entry(None, None, None, {}),  # no experiment
        "r_metric_weights": weights_entry(weights),
        "alert_thresholds": dict(thresholds),
        **({"sigma_sq_every_n_steps": sigma_sq_every} if sigma_sq_every > 1 else {}),
    }


def with_entries(known: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """``config`` with the user's entries, which come first; one that only the monitor knows is told of and left out."""
    refused = [name for name, value in own.items() if name in OF_THE_MONITOR and value != known.get(name)]
    if refused:
        LOGGER.warning("config=: the log has the monitor's own %s; give yours another name", ", ".join(refused))
    return {**known, **{name: value for name, value in own.items() if name not in refused}}


def workers_in(config: Mapping[str, Any] | None, processes: int) -> int:
    """How many workers train: the processes, or those that one process plays in a study.

    A user's ``num_workers`` are most often those of a data loader.

    >>> workers_in(LogConfig(num_workers=4), 1), workers_in({"num_workers": 4}, 1), workers_in({"num_workers": 4}, 2)
    (4, 1, 2)
    """
    return int(config["num_workers"]) if isinstance(config, LogConfig) and processes == 1 else processes


class Recorder:
    """Turns the results of a step into events.

    A METRICS record of a live run looks like this (here wrapped)::

        {"event":"METRICS","step":212,"training_loss":2.412345,"validation_loss":2.401234,"learning_rate":0.001,
         "grad_norm":0.8123456,"update_rms":0.0004123456,"step_time_s":0.01812345,"lambda":0.0,
         "sigma_sq":0.001412345,"delta_l":-0.3123456,"non_finite_count":0.0,"settings_changed":0.0,"uniform_gap":-3.132832,"hardware_events":0.0,
         "noise_scale":6.412345,"lambda_norm":0.0,"sigma_sq_norm":0.01212345,"delta_l_norm":1.0,
         "r_metric":0.7054556,"alerts":{},"active_workers":[0,1,2,3],"is_nan":false,"is_crashed":false}
    """

    def __init__(self, sinks: Sinks, config: Mapping[str, Any], workers: int) -> None:
        self._sinks, self._config, self._workers = sinks, config, range(workers)
        self._notes: list[Event] = []
        self._open = False
        self._sources: dict[str, str] = {}
        self._lost: set[int] = set()

    def start(self, resume_step: int | None) -> None:
        """Begin the run, or go on after ``resume_step``."""
        self._sinks.start(self._config, resume_step=resume_step)
        self._open = True

    def now(self, event: Event) -> None:
        """Write an event at once, from any thread; before the start, there is only ``logging`` to tell of it."""
        if self._open:
            self._sinks.event(event)
        elif "message" in event:
            LOGGER.warning("R-Metric: %s", event["message"])

    def note(self, event: Event) -> None:
        """Keep a line until the record of its step is written."""
        self._notes.append(event)

    def validation(self, step: int, loss: float) -> None:
        """Write an evaluation that was made after a step, the record of which is written."""
        self._sinks.event({"event": VALIDATION, "step": step, "validation_loss": loss})

    def step(self, step: ArrivedStep, observation: Observation, detections: Detections, estimators: Estimators) -> None:
        """Write one step: notes, hardware events, changed sources and settings, the record, alerts, norms, details."""
        pending, numbers, number = step.pending, step.numbers, step.pending.step
        self.write_notes(number)
        for report in step.reports:
            self._hardware_event(number, estimators.elapsed_s, report)
        for signal, source in estimators.sources.items():
            if self._sources.get(signal) != source:
                self._sources[signal] = source
                self._sinks.event({"event": "SIGNAL_SOURCE", "step": number, "signal": signal, "source": source})
        for change in (*step.changes, *pending.restored_settings):
            self._setting_changed(number, change)
        if (fewer := estimators.trained.news) is not None:
            self._setting_changed(number, fewer, message=note_of_change(number, fewer, FROZEN_RECORDS))
        self._sinks.event(self._record(observation, detections, estimators.noise_scale))
        self.alerts(detections)
        if numbers.gradients and (number % TENSOR_NORMS_EVERY == 0 or detections.alerts):
            names = [numbers.names[index] for index in numbers.gradients]
            norms = dict(zip(names, numbers.norms.tolist(), strict=True))
            self._sinks.event({"event": "TENSOR_GRAD_NORMS", "step": number, "norms": norms})
        if detections.alerts:  # whoever is told looks at once
            self._sinks.flush()
        for detail in (*step.of_workers, *(step.inside.events if step.inside else ())):
            self._sinks.event(detail)

    def alerts(self, detections: Detections, **marks: bool) -> None:
        """Write the alerts that begin in a step; ``at_end=True``: those that a run that is resumed writes again."""
        for alert in detections.alerts:
            fields = {name: value for name, value in vars(alert).items() if value != ""}
            self._sinks.event({"event": "ALERT", **fields, **marks})

    def write_notes(self, step: float = math.inf) -> None:
        """Write the notes up to a step, in their order; at the end all of them."""
        due = [note for note in self._notes if note["step"] <= step]
        self._notes = [note for note in self._notes if note["step"] > step]
        for note in due:
            self._sinks.event(note)

    def close(self) -> None:
        """Close the sinks; what a thread has to say afterwards, as of a hang, comes too late for them."""
        self._open = False
        self._sinks.close()

    def _setting_changed(self, step: int, change: SettingChange, **told: str) -> None:
        self._sinks.event({"event": "SETTING_CHANGED", "step": step, **change._asdict(), **told})

    def _hardware_event(self, step: int, elapsed_s: float, report: HardwareReport) -> None:
        if report.kind == "fatal" and report.worker is not None:
            self._lost.add(report.worker)
        whose = {} if report.worker is None else {"worker": report.worker}
        fields = {"component": report.component, "kind": report.kind, **whose, "details": report.details}
        if report.phase:
            fields["phase"] = report.phase
        if report.lasting:
            fields["message"] = f"Step {step}: worker {report.worker} is slow and all others wait: {report.details}."
        self._sinks.event({"event": "HARDWARE_EVENT", "step": step, "time_s": elapsed_s, **fields})

    def _record(self, observation: Observation, detections: Detections, noise_scale: float) -> Event:
        values = {name: observation[name] for name in MEASUREMENTS} | {"noise_scale": noise_scale}
        values |= {name: float(value) for name, value in detections.r.by_log_name().items()}
        return {
            "event": "METRICS",
            "step": observation.step,
            **{name: value for name, value in values.items() if not math.isnan(value)},
            **({"mechanism": with_non_finite_named(observation.mechanism)} if observation.mechanism else {}),
            "alerts": dict(detections.first_alerts),
            "active_workers": [worker for worker in self._workers if worker not in self._lost],
            "is_nan": math.isinf(observation["training_loss"]),
            "is_crashed": False,
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "notes": [dict(note) for note in self._notes],
            "sources": dict(self._sources),
            "lost": sorted(self._lost),
            "sinks": self._sinks.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._notes = [dict(note) for note in state["notes"]]
        self._sources, self._lost = dict(state["sources"]), {*state["lost"]}
        self._sinks.load_state_dict(state["sinks"])
