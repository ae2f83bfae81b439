"""Check what a monitor is given, so that a mistake is one line before training and not a traceback in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, get_args

from rmetric.detectors import Detector
from rmetric.errors import UserError
from rmetric.monitor.hardware import HardwareReport, HardwareWatch
from rmetric.monitor.hardware.reports import Kind
from rmetric.monitor.notes import readable
from rmetric.monitor.record_interval import AUTO
from rmetric.monitor.sinks import Sink
from rmetric.monitor.worker_lost import UNKNOWN_WORKER


def check_options(
    *, on_alert: Any, detectors: Any, config: Any, sinks: Any, clock: Any, log: Any, hardware: Any, vocabulary: Any,
    announce: Any, **_: Any,
) -> None:  # fmt: skip
    """Raise :class:`UserError` for an option of the wrong kind, with what to pass instead."""
    if on_alert is not None and not callable(on_alert):
        raise UserError(f"on_alert must be a function that takes an Alert, such as on_alert=print; not {on_alert!r}")
    if clock is not None and not callable(clock):
        raise UserError(f"clock must be a function that returns seconds, such as time.perf_counter; not {clock!r}")
    if config is not None and not isinstance(config, Mapping):
        raise UserError(f"config must be a dictionary, such as config={{'experiment_id': 'run 7'}}; not {config!r}")
    _check_items("detectors", detectors, str | Detector, "detectors=['numerics', 'r_metric_robust']")
    _check_items("sinks", sinks, Sink, "sinks=[TensorBoardSink('folder')]; a file for the log is log='run.jsonl'")
    if log is not None and not isinstance(log, str | PathLike):
        raise UserError(f"log must be the path of a file, such as log='run.jsonl'; not {log!r}")
    if vocabulary is not None:
        check_number("vocabulary", vocabulary, "tokens", least=2, example=50257)
    check_switch_or("hardware", hardware, HardwareWatch)
    check_switch("announce", announce)


def check_switch(name: str, given: Any) -> None:
    """Raise :class:`UserError` unless this is a truth value."""
    if not isinstance(given, int):
        raise UserError(f"{name} must be True or False; not {given!r}")


def check_switch_or(name: str, given: Any, kind: type) -> None:
    """Raise :class:`UserError` unless this is a truth value, an object of that kind, or left out."""
    if given is not None and not isinstance(given, bool | kind):
        raise UserError(f"{name} must be True, False, or a {kind.__name__}; not {given!r}")


def check_number(name: str, number: Any, of: str = "steps", least: int = 1, example: int = 10) -> None:
    """Raise :class:`UserError` unless this is a whole number of something, at least ``least``."""
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise UserError(
            f"{name} must be a whole number of {of}, at least {least}, such as {name}={example}; not {number!r}"
        )


def check_record_interval(steps: Any, processes: int, **in_every_step: bool) -> None:
    """Raise :class:`UserError` unless it is ``"auto"`` or a number of steps, and goes with what else is asked for."""
    if steps != AUTO:
        check_number("record_every", steps)
    asked = [name for name, there in in_every_step.items() if there]
    if steps != 1 and asked:
        raise UserError(f"{asked[0]} looks at every step; leave it out, or leave record_every at 1, not {steps!r}")
    if steps == AUTO and processes > 1:
        raise UserError("record_every='auto' is for a training in one process; give a number of steps")


def check_state(state: Any) -> None:
    """Raise :class:`UserError` unless this is what a monitor's ``state_dict`` returned, or empty."""
    if isinstance(state, Mapping) and (not state or _is_state(state)):
        return
    parts = state.items() if isinstance(state, Mapping) else ()
    key = next((key for key, part in parts if _is_state(part)), None)
    hint = "what monitor.state_dict() has returned" if key is None else f"checkpoint[{key!r}], the monitor's part of it"
    raise UserError(f"this is not the state of a monitor; pass {hint}")


def _is_state(part: Any) -> bool:
    return isinstance(part, Mapping) and {"step", "history", "recorder"} <= part.keys()


def hardware_report(component: Any, kind: Any, worker: Any, details: Any) -> HardwareReport:
    """Report of a hardware event that a user saw; raises :class:`UserError` for a kind or a worker there is not."""
    if kind not in get_args(Kind):
        raise UserError(f"kind= of a hardware_event must be {' or '.join(get_args(Kind))}, not {kind!r}")
    number = readable(worker)
    if isinstance(number, bool) or not isinstance(number, int) or number < UNKNOWN_WORKER:
        raise UserError(f"worker= of a hardware_event must be the rank of a worker, such as worker=3; not {worker!r}")
    return HardwareReport(readable(str(component)), kind, number, readable(str(details)))


def _check_items(name: str, given: Any, kind: Any, example: str) -> None:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise UserError(f"{name} must be a list, such as {example}; not {given!r}")
    for item in given:
        if not isinstance(item, kind):
            raise UserError(f"{name} cannot hold {item!r}; pass such as {example}")


def kind_of(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
