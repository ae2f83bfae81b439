"""Evidence of events in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rmetric.diagnosis.events import Event
from rmetric.episodes import REARM_STEPS

NAMES = {
    "training_loss": "loss", "validation_loss": "validation loss", "delta_l": "ΔL", "uniform_gap": "loss",
    "grad_norm": "gradient norm", "sigma_sq": "variance of the gradients", "non_finite_count": "gradient",
    "grad_agreement": "agreement of the gradient with the steps before",
    "settings_changed": "settings that changed",
    "update_rms": "update RMS", "hardware_events": "hardware events", "event_worker": "hardware events",
    "lambda": "hardware events an hour", "step_time_s": "step time (s)", "step_time_max_s": "longest step (s)",
}  # fmt: skip
"""Measurement → its name in a sentence."""


def sentence_of(events: Sequence[Event]) -> str:
    """Evidence of one or more events of one kind."""
    first, last = events[0], events[-1]
    if len(events) == 1:
        return what(first)
    return f"{what(first)}; {len(events)} times in all, last at step {last.step:,}"


def what(event: Event) -> str:
    """What stood out in an event, in numbers."""
    meanwhile = f"; meanwhile {event.detail}" if event.detail and event.kind != "SETTING_CHANGED" else ""
    if event.kept:
        return f"{_what(event)}{meanwhile}, and the log does not say that it was taken back"
    return _what(event) + meanwhile + (", and it is so at the end" if event.lasts_to is not None else "")


def _what(event: Event) -> str:
    name = NAMES[event.measurement]
    lasting = f", in {event.alerts:,} records" if event.alerts > 1 else ""
    if event.kind == "NOT_FINITE":
        began = f" after an alert at step {event.step:,}" if event.at > event.step else ""
        return f"the {name} is not finite at step {event.at:,}{began}{_before(event)}{lasting}"
    if event.kind == "UNIFORM_ANSWER":
        return f"the loss is ln(vocabulary) at step {event.at:,}: every token is answered alike{lasting}"
    if event.kind.startswith("ZERO_"):
        return f"the {name} is exactly 0 at step {event.at:,}{_before(event)}{lasting}"
    if event.kind == "SETTING_CHANGED":
        many = "a setting" if event.value == 1.0 else f"{event.value:.0f} settings"
        return f"{many} changed abruptly at step {event.at:,}" + (f": {event.detail}" if event.detail else "")
    by = f", most by worker {event.worker}" if event.kind == "HARDWARE_EVENTS" and event.worker is not None else ""
    return f"{name} {number(event.value)} at step {event.at:,}{_before(event)}{by}{lasting}"


def _before(event: Event) -> str:
    if math.isnan(event.before):
        return ""
    return f"; {number(event.before)} before (median of {REARM_STEPS} records)"


def number(value: float) -> str:
    """Four significant digits; ``not measured`` for NaN.

    >>> number(0.123456), number(float("nan"))
    ('0.1235', 'not measured')
    """
    return "not measured" if math.isnan(value) else f"{value:.4g}"
