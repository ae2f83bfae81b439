"""Events of a log as a replay needs them: checked, reduced, and the metadata of the run they state."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np

from rmetric.batches import NumberedEvent, RecordBatch
from rmetric.log_lines import OnDamage, plain_text
from rmetric.records import (
    CLASSES,
    MAX_STEP,
    START,
    TERMINAL_EVENTS,
    VALIDATION,
    Event,
    Observations,
    Run,
    is_converted,
    step_of,
)
from rmetric.verdict import CALL_ORDER, REPAIRS_ENDED, STATE, RunSummary, is_news

MAX_MESSAGE = 1000
"""Characters of an alert's message that are kept."""
MAX_ALERTS = 100
"""Alerts of the run's own monitor that are kept; all are counted."""
MAX_NAMES = 256
"""Entries of one object of the log that are looked at."""
_NUMBERS = ("total_training_steps", "step_time_s")
_SETTINGS_OF_R = ("r_metric_weights", "alert_thresholds")


def is_finite_number(value: Any) -> TypeGuard[float]:
    """Return whether a JSON value is a number to compute with: no truth value, no NaN, nothing beyond 10³⁰⁰."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


@dataclass(frozen=True)
class OwnAlert:
    """An alert that the run's own monitor told people of."""

    step: int
    detector: str
    message: str

    def __str__(self) -> str:
        return f"alert of its own monitor ({self.detector}): {self.message}"


@dataclass
class RunMetadata:
    """Metadata of a run: what its log says besides the measurements, of bounded size."""

    config: Event = field(default_factory=dict)
    """Part of EXPERIMENT_START that a replay needs; empty if the log has none."""
    started: bool = False
    """True if there was an EXPERIMENT_START."""
    converted: bool = False
    """True if it says that the log was made of another program's."""
    is_event_log: bool = False
    """True if the log is of the kind whose last line says how the run ended."""
    injected: Event | None = None
    """The first FAULT_INJECTED."""
    last_event: Event | None = None
    """The last one that is neither a record nor a hardware event."""
    stated_alerts: Event | None = None
    """``alerts`` of the latest record that has them, as it is; ``None``: the log says nothing."""

    summary: RunSummary = field(default_factory=RunSummary)
    """Count of what its own monitor said; records are not counted here."""
    own_alerts: list[OwnAlert] = field(default_factory=list)
    """The first of its own monitor's alerts, one a cause."""

    def begin(self, config: Any, *, late: bool) -> None:
        """Take over the configuration; ``late`` (after the first records), it does not set weights and threshold."""
        self.started = self.is_event_log = True
        self.converted = is_converted(config)
        if not isinstance(config, dict):
            return
        injection = config.get("fault_injection")
        stated = injection if isinstance(injection, dict) else {}
        self.config = {
            "model_type": plain_text(config.get("model_type") or "unknown"),
            "fault_injection": {key: plain_text(stated[key]) for key in ("type", "severity") if stated.get(key)},
        }
        self.config["signals_measured_live"] = config.get("signals_measured_live") is True
        numbers = _NUMBERS if late else (*_NUMBERS, "r_metric_alert_threshold")
        self.config |= {key: config[key] for key in numbers if is_finite_number(config.get(key))}
        for key in () if late else _SETTINGS_OF_R:
            if isinstance(config.get(key), dict) and len(config[key]) <= MAX_NAMES:
                self.config[key] = config[key]

    def note(self, event: Event) -> None:
        """The next event that is neither a record nor a hardware event."""
        if event["event"] == "FAULT_INJECTED" and self.injected is None:
            self.injected = event
        self.last_event = event
        self.summary.note(event)

    def note_alert(self, event: Event) -> None:
        """The next ALERT."""
        told: dict[str, Any] = {
            name: plain_text(event[name], MAX_MESSAGE) for name in ("detector", "message", "repeats") if name in event
        }
        step = step_of(event)
        self.note({"event": "ALERT", "step": step, **told})
        if is_news(told) and step is not None and len(self.own_alerts) < MAX_ALERTS:
            self.own_alerts.append(OwnAlert(step, told.get("detector", "unknown"), told["message"]))

    @property
    def is_own(self) -> bool:
        """True if somebody's own run wrote it, and no experiment with a fault or without one."""
        return self.is_live and not self.config.get("fault_injection") and self.injected is None

    @property
    def is_live(self) -> bool:
        """True if the monitor of a live run wrote it, with all signals as it had measured them."""
        return bool(self.config.get("signals_measured_live"))

    def own(self, records: int, last_step: int | None) -> RunSummary | None:
        """What the monitor of a user's own run found, with its records counted; ``None``: the log is of no such run."""
        if not self.is_own:
            return None
        self.summary.records, self.summary.last_record = records, last_step
        if not self.summary.ended:
            self.summary.last_step = last_step or 0
        return self.summary

    @property
    def injection_step(self) -> int | None:
        """Step of the first FAULT_INJECTED so far."""
        return None if self.injected is None else self.injected["step"]

    @property
    def logged_alerts(self) -> dict[str, int] | None:
        """Detector → first alert step as the log has it; ``None`` if it says nothing."""
        if self.stated_alerts is None:
            return None
        stated = [(name, step) for name, step in self.stated_alerts.items() if type(step) is int]
        return {plain_text(name): step for name, step in stated[:MAX_NAMES]}

    @property
    def names_its_run(self) -> bool:
        """True if the log says which model and which fault (or none)."""
        return (self.started and not self.converted) or self.injected is not None

    def as_run(self, name: str, last_step: int | None) -> Run:
        """The run without its measurements, as :func:`~rmetric.evaluation.truth.truth_of` judges it."""
        config = dict(self.config)
        if self.injected is not None and not config.get("fault_injection", {}).get("type"):
            config["fault_injection"] = {"type": self.injected.get("fault", "UNKNOWN")}  # the head was lost
        steps = np.array([] if last_step is None else [last_step], dtype=np.int64)
        events = [event for event in (self.injected, self.last_event) if event is not None]
        return Run(name, config, Observations(steps), events)


class EventFilter:
    """Passes on records, evaluations and usable hardware events; notes the rest in :attr:`metadata`.

    Holds no line for long.
    """

    def __init__(self) -> None:
        self.metadata = RunMetadata()
        """Statements of the log on its run so far."""
        self._any_record = False
        self._latest_step = 0
        self._step_time_s = math.nan

    def admit(self, events: Iterator[NumberedEvent], on_damage: OnDamage) -> Iterator[NumberedEvent]:
        """The records as they are, evaluations, hardware events with a usable ``time_s``; each with its line number."""
        for line, event in events:
            kind = event.get("event")
            if isinstance(event, RecordBatch):
                self.metadata.is_event_log = True
                self._note_batch(event)
                yield line, event
            elif kind == "METRICS":
                self.metadata.is_event_log = True
                self._note_record(event)
                yield line, event
            elif kind is None:
                event.pop("event", None)
                self._note_record(event)
                yield line, event
            elif not isinstance(kind, str):
                on_damage(line, f"event must be a name, not {type(kind).__name__}; skipped")
            elif kind == "HARDWARE_EVENT":
                self.metadata.summary.note({"event": kind, "message": event.get("message")})
                time_s = self._time_of(event)
                if time_s is None:
                    on_damage(line, "HARDWARE_EVENT has no usable time_s, nor a step with a known step time; skipped")
                else:
                    yield line, {"event": kind, "time_s": time_s}
            elif kind == VALIDATION:
                self.metadata.note({"event": kind})
                yield line, {name: event[name] for name in ("event", "step", "validation_loss") if name in event}
            elif kind == CLASSES:
                yield line, {name: event[name] for name in ("event", "step", "classes") if name in event}
            elif kind == START:
                self._start(line, event, on_damage)
            elif kind == "FAULT_INJECTED" or kind in TERMINAL_EVENTS:
                self.metadata.note(self._dated(line, event, on_damage))
            elif kind == "ALERT":
                self.metadata.note_alert(event)
            elif kind in ("REPAIR", "HANG"):
                self.metadata.note({"event": kind, "message": plain_text(event.get("message", ""))})
            elif kind in (STATE, REPAIRS_ENDED):
                self.metadata.summary.note(event)
            elif kind == CALL_ORDER:
                self.metadata.note({"event": kind, "wrong": plain_text(event.get("wrong", ""))})
            else:
                self.metadata.note({"event": plain_text(kind)})

    def _note_record(self, record: Event) -> None:
        self._any_record = True
        step_time_s, step, alerts = record.get("step_time_s"), record.get("step"), record.get("alerts")
        if type(step_time_s) is float or type(step_time_s) is int:
            self._step_time_s = step_time_s
        if type(step) is int and self._latest_step < step < MAX_STEP:
            self._latest_step = step
        if type(alerts) is dict:
            self.metadata.stated_alerts = alerts

    def _note_batch(self, batch: RecordBatch) -> None:
        """The same for all records of a batch: what the latest of them says holds."""
        stated = (alerts for alerts in reversed(batch.alerts) if type(alerts) is dict)
        latest = {"step": int(batch.step[-1]), "alerts": next(stated, None)}
        step_time_s = batch.latest("step_time_s")
        self._note_record(latest if math.isnan(step_time_s) else {**latest, "step_time_s": step_time_s})

    def _start(self, line: int, event: Event, on_damage: OnDamage) -> None:
        if self.metadata.started:
            on_damage(line, "a second EXPERIMENT_START; the first one's configuration is kept")
            return
        if self._any_record:
            on_damage(line, "EXPERIMENT_START stands after the first records; its weights and threshold are not used")
        self.metadata.begin(event.get("config"), late=self._any_record)
        if math.isnan(self._step_time_s):
            self._step_time_s = float(self.metadata.config.get("step_time_s", math.nan))

    def _dated(self, line: int, event: Event, on_damage: OnDamage) -> Event:
        """A fault or the end of the run: its texts, and a usable step."""
        dated: Event = {key: plain_text(event[key]) for key in ("fault", "reason", "outcome") if key in event}
        dated["event"] = event["event"]
        step = step_of(event)
        dated["step"] = self._latest_step if step is None else step
        if step is None:
            on_damage(line, f"{event['event']} has no usable step; the latest record's is taken")
        return dated

    def _time_of(self, event: Event) -> float | None:
        """Seconds of training time of a hardware event, from its step and the latest step time if need be."""
        time_s, step = event.get("time_s"), event.get("step")
        if is_finite_number(time_s):
            return float(time_s)
        if is_finite_number(step) and math.isfinite(self._step_time_s):
            return float(step) * self._step_time_s
        return None
