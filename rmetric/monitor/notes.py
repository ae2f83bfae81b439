"""What users put into the log: their values in a form that it can hold, and names that are not theirs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import NoneType
from typing import Any

import numpy as np

from rmetric.errors import UserError
from rmetric.monitor.ranks.worker_times import WORKER_TIMES
from rmetric.records import CLASSES, START, TERMINAL_EVENTS, VALIDATION, Event, whole_step
from rmetric.verdict import CALL_ORDER, REPAIRS_ENDED, STATE

PLANNED_CHANGE = "PLANNED_CHANGE"
RESERVED = frozenset(
    {START, "METRICS", VALIDATION, *TERMINAL_EVENTS, "ALERT", "REPAIR", REPAIRS_ENDED, "HARDWARE_EVENT", "HANG"}
    | {"HANG_OVER", CALL_ORDER, "SIGNAL_SOURCE", "SETTING_CHANGED", "TENSOR_GRAD_NORMS", "RECORD_INTERVAL", "MECHANISM"}
    | {PLANNED_CHANGE, STATE, WORKER_TIMES, CLASSES}
)
"""Events that the monitor writes; a reader would take a note of that name for one of them."""


def note_of(name: Any, step: Any, fields: Mapping[str, Any]) -> Event:
    """Line of a user's note; raises :class:`UserError` for a name or a step that no note can have."""
    if not isinstance(name, str) or not name or name in RESERVED:
        raise UserError(f"a note cannot be named {name!r}; take a name of your own, such as note('CHANGED_BATCH')")
    whole = whole_step(readable(step))
    if whole is None:
        raise UserError(f"step= of the note {name} must be a whole number, 0 or more, not {step!r}")
    return {"event": name, "step": whole, **readable(fields)}


def planned_change(what: Any, step: int) -> Event:
    """Line of a change that was announced; raises :class:`UserError` where no words say what it is."""
    if not isinstance(what, str) or not what.strip():
        raise UserError(f"planned({what!r}) needs a description of the change, such as planned('unfreeze the encoder')")
    return {"event": PLANNED_CHANGE, "step": step, "what": readable(what)}


def readable(value: Any) -> Any:
    """A value in a form that the log and a checkpoint can hold; what JSON has no form for becomes text.

    >>> readable({"loss": np.float32(0.5), "seen": (1, 2), "file": {"run.jsonl"}, "big": 2**70})
    {'loss': 0.5, 'seen': [1, 2], 'file': "{'run.jsonl'}", 'big': '1180591620717411303424'}
    """
    if isinstance(value, Mapping):
        return {str(key): readable(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return readable(value.tolist())
    if isinstance(value, list | tuple):
        return [readable(item) for item in value]
    if (number := number_in(value)) is not None:
        return readable(number)
    if isinstance(value, float | NoneType) or (isinstance(value, int) and -(2**63) <= value < 2**64):
        return value
    text = value if isinstance(value, str) else " ".join(str(value).split())
    return text.encode(errors="replace").decode()  # half a character, as file names may have it, is no JSON


def number_in(value: Any) -> Any:
    """The one number that an array of NumPy, torch, JAX or the like holds; ``None`` for all else."""
    with suppress(Exception):  # of more than one, each library raises an exception of its own
        number = value.item()
        return number if isinstance(number, int | float) else None
    return None
