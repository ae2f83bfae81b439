"""The latest numbers of a run, held ready for a training framework's own log."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from rmetric.measurements import LOSSES, OWN_PREFIX, OWN_STEP, VERDICTS
from rmetric.monitor.sinks.base import Sink, scalars
from rmetric.verdict import is_news

LEFT_OUT = {*LOSSES, *VERDICTS} - {"r_metric"}
ALERTS = f"{OWN_PREFIX}alerts"


class FrameworkLog(Sink):
    """Holds the latest record's numbers under ``rmetric/<field>``, with its step and the alerts so far.

    Left out is what is logged anyway, and what is not finite, which many of their files cannot hold; an alert tells of
    that.

    ``theirs``: fields that the framework logs by itself, beside the losses.
    """

    def __init__(self, theirs: Iterable[str] = ()) -> None:
        self._left_out = LEFT_OUT.union(theirs)
        self.values: dict[str, float] = {}
        """Numbers to log; empty before the first record, and in all processes but the first."""
        self.urgent = False
        """True from an alert on until :meth:`take`."""
        self._alerts = 0

    def __str__(self) -> str:
        return "the framework's log"

    def event(self, event: Mapping[str, Any]) -> None:
        if event.get("event") == "METRICS":
            numbers = {name: value for name, value in scalars(event).items() if name not in self._left_out}
            finite = {f"{OWN_PREFIX}{name}": value for name, value in numbers.items() if math.isfinite(value)}
            self.values = finite | {OWN_STEP: float(event["step"]), ALERTS: float(self._alerts)}
        elif event.get("event") == "ALERT" and is_news(event):
            self._alerts += 1
            self.values[ALERTS] = float(self._alerts)
            self.urgent = True

    def take(self) -> dict[str, float]:
        self.urgent = False
        return dict(self.values)

    def state_dict(self) -> dict[str, Any]:
        return {"alerts": self._alerts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._alerts = int(state.get("alerts", 0))
