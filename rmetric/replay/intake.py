"""The gate through which the events of a log come in: only what a replay needs of each, checked."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rmetric.records import MAX_STEP, TERMINAL_EVENTS, Event, NumberedEvent, OnDamage, step_of
from rmetric.replay.story import Story
from rmetric.replay.text import is_finite_number, plain_text


class Intake:
    """Lets records and hardware events through and tells the rest to :attr:`story`; holds no line for long."""

    def __init__(self) -> None:
        self.story = Story()
        """What the log has said of its run so far."""
        self._any_record = False
        self._latest_step = 0
        self._step_time_s = math.nan

    def admit(self, events: Iterator[NumberedEvent], on_damage: OnDamage) -> Iterator[NumberedEvent]:
        """The records as they are, and hardware events with a usable ``time_s``, each with its line number."""
        for line, event in events:
            kind = event.get("event")
            if kind == "METRICS":
                self.story.is_event_log = True
                self._note_record(event)
                yield line, event
            elif kind is None:
                event.pop("event", None)
                self._note_record(event)
                yield line, event
            elif not isinstance(kind, str):
                on_damage(line, f"event must be a name, not {type(kind).__name__}; skipped")
            elif kind == "HARDWARE_EVENT":
                time_s = self._time_of(event)
                if time_s is None:
                    on_damage(line, "HARDWARE_EVENT has no usable time_s, nor a step with a known step time; skipped")
                else:
                    yield line, {"event": kind, "time_s": time_s}
            elif kind == "EXPERIMENT_START":
                self._start(line, event, on_damage)
            elif kind == "FAULT_INJECTED" or kind in TERMINAL_EVENTS:
                self.story.note(self._dated(line, event, on_damage))
            else:
                self.story.note({"event": plain_text(kind)})

    def _note_record(self, record: Event) -> None:
        self._any_record = True
        step_time_s, step, alerts = record.get("step_time_s"), record.get("step"), record.get("alerts")
        if type(step_time_s) is float or type(step_time_s) is int:
            self._step_time_s = step_time_s
        if type(step) is int and self._latest_step < step < MAX_STEP:
            self._latest_step = step
        if type(alerts) is dict:
            self.story.stated_alerts = alerts

    def _start(self, line: int, event: Event, on_damage: OnDamage) -> None:
        if self.story.started:
            on_damage(line, "a second EXPERIMENT_START; the first one's configuration is kept")
            return
        if self._any_record:
            on_damage(line, "EXPERIMENT_START stands after the first records; its weights and threshold are not used")
        self.story.begin(event.get("config"), late=self._any_record)
        if math.isnan(self._step_time_s):
            self._step_time_s = float(self.story.config.get("step_time_s", math.nan))

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
            return float(time_s)  # type: ignore[arg-type]
        if is_finite_number(step) and math.isfinite(self._step_time_s):
            return float(step) * self._step_time_s  # type: ignore[arg-type]
        return None
