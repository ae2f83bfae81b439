"""The workers' own times of a run: judged, and in the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rmetric.monitor.hardware import HardwareReport
from rmetric.monitor.ranks.phases import TIMED
from rmetric.monitor.ranks.slow_workers import SlowWorkers, Times
from rmetric.records import Event
from rmetric.state import restore, state_of

WORKER_TIMES = "WORKER_TIMES"
"""Event: medians over ``steps`` steps of what each worker spends on its own work; ``input_s``, ``forward_s`` and
``backward_s``, one number a worker, seconds."""
LOGGED_EVERY = 20
"""Steps between two such events; where a worker is named there is one of that step alone."""


@dataclass(frozen=True)
class Judgement:
    """What the workers' times of a step say."""

    reports: list[HardwareReport]
    """Workers that are slow by themselves."""
    events: list[Event]
    """Lines for the log."""


class WorkerTimes:
    """Judges and logs the workers' times, step after step.

    Parameters
    ----------
    workers
        Their number.
    lag
        Steps by which the times are late.
    """

    def __init__(self, workers: int, lag: int) -> None:
        self._workers, self._lag = workers, lag
        self._slow = SlowWorkers(workers)
        self._recent: list[Any] = []

    def update(self, step: int, times_WP: Times) -> Judgement:
        """Take in the times that were exchanged in a step."""
        of_step = step - self._lag
        reports = self._slow.update(times_WP)
        self._recent.append(times_WP.tolist())
        events = [_event(of_step, [times_WP])] if reports else []
        if step % LOGGED_EVERY == 0:
            events.append(_event(of_step, self._recent))
            self._recent = []
        return Judgement(reports, events)

    def state_dict(self) -> dict[str, Any]:
        """History in plain values."""
        return {"workers": self._workers, "slow": state_of(self._slow), "recent": self._recent}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state; anew if it is that of another number of workers."""
        if state["workers"] == self._workers:
            restore(self._slow, state["slow"])
            self._recent = list(state["recent"])


def _event(step: int, times_TWP: list[Any]) -> Event:
    """Medians over some steps, shape (steps, workers, phases); ``None``: not measured."""
    found = {}
    for phase, times_TW in zip(TIMED, np.moveaxis(np.array(times_TWP), 2, 0), strict=True):
        known = [column[np.isfinite(column)] for column in times_TW.T]
        found[f"{phase}_s"] = [float(f"{np.median(column):.4g}") if len(column) else None for column in known]
    return {"event": WORKER_TIMES, "step": max(step, 0), "steps": len(times_TWP), **found}
