"""From what the monitors measured in a step to values and events of its record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rmetric.records import Event
from rmetric.training.mechanism.base import Measured
from rmetric.training.mechanism.beside import Outcome

DIGITS = 5
"""Significant digits of a detail in the log."""


class Work(Protocol):
    """Tasks on their way: :class:`~rmetric.training.mechanism.beside.Beside` or ``AtOnce``."""

    def results(self) -> Mapping[str, Outcome]:
        """What came out, by name, as soon as all has."""


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """What all monitors say of one step."""

    values: Mapping[str, float] = field(default_factory=dict)
    """By name; NaN and infinity were measured and are not finite."""
    worst: Mapping[str, str] = field(default_factory=dict)
    """Name → layer, head, expert or tensor."""
    events: Sequence[Event] = ()
    """One MECHANISM event a monitor, with all locations."""


class OnItsWay:
    """The measurements of one step, somewhere between the device and the host.

    Parameters
    ----------
    step
        Its number.
    work
        Where they are worked out.
    summarise
        From a monitor's name and what came out to what it says of it; ``None``: nothing.
    """

    def __init__(self, step: int, work: Work, summarise: Callable[[str, Outcome], Measured | None]) -> None:
        self._step, self._work, self._summarise = step, work, summarise

    def read(self) -> Mechanism:
        """What was found, as soon as it has arrived."""
        values: dict[str, float] = {}
        worst: dict[str, str] = {}
        events: list[Event] = []
        for name, found in self._work.results().items():
            measured = self._summarise(name, found)
            if measured is None:
                continue
            values |= measured.values
            worst |= measured.worst
            details = {key: _rounded(value) for key, value in measured.details.items()}
            event = {"event": "MECHANISM", "step": self._step, "monitor": name, "worst": dict(measured.worst)}
            events.append({**event, "details": details})
        return Mechanism(values=values, worst=worst, events=events)


def _rounded(value: Any) -> Any:
    """Numbers as the log has them, however deep they are nested; whole numbers and texts as they are."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
