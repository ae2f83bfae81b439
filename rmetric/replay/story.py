"""What a log says of its run besides the measurements: configuration, fault, end, and the run's own alerts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rmetric.records import Event, Observations, Run
from rmetric.replay.text import is_finite_number, plain_text

MAX_NAMES = 256
"""Entries of one object of the log that are looked at."""
_NUMBERS = ("total_training_steps", "step_time_s")
_SETTINGS_OF_R = ("r_metric_weights", "alert_thresholds")


@dataclass
class Story:
    """What a log says of its run besides the measurements, of bounded size."""

    config: Event = field(default_factory=dict)
    """Of EXPERIMENT_START, what a replay needs of it; empty if the log has none."""
    started: bool = False
    """Whether there was an EXPERIMENT_START."""
    is_event_log: bool = False
    """Whether the log is of the kind whose last line says how the run ended."""
    injected: Event | None = None
    """The first FAULT_INJECTED."""
    last_event: Event | None = None
    """The last one that is neither a record nor a hardware event."""
    stated_alerts: Event | None = None
    """``alerts`` of the latest record that has them, as it is; ``None``: the log says nothing."""

    def begin(self, config: Any, *, late: bool) -> None:
        """Take over the configuration; ``late`` (after the first records), it does not set weights and threshold."""
        self.started = self.is_event_log = True
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

    @property
    def is_live(self) -> bool:
        """Whether the monitor of a live run wrote it, with all signals as it had measured them."""
        return bool(self.config.get("signals_measured_live"))

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
        """Whether the log says which model and which fault (or none)."""
        return self.started or self.injected is not None

    def as_run(self, name: str, last_step: int | None) -> Run:
        """The run without its measurements, as :func:`~rmetric.evaluation.ground_truth.truth_of` judges it."""
        config = dict(self.config)
        if self.injected is not None and not config.get("fault_injection", {}).get("type"):
            config["fault_injection"] = {"type": self.injected.get("fault", "UNKNOWN")}  # the head was lost
        steps = np.array([] if last_step is None else [last_step], dtype=np.int64)
        events = [event for event in (self.injected, self.last_event) if event is not None]
        return Run(name, config, Observations(steps), events)
