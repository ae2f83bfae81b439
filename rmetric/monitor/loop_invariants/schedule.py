"""Invariants of the learning rate: it goes on as it has gone."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rmetric.advice import RATE, SCHEDULE
from rmetric.monitor.changes import SettingChange
from rmetric.monitor.loop_invariants.base import Invariant
from rmetric.robust.context import RATE_FACTOR, SAME_RATE

STEADY = 0.02
"""Relative tolerance of a learning rate's speed from one measurement to the next: schedules are curved."""


class ScheduleSpeed(Invariant):
    """A learning rate that changes gradually does not do so twice as fast, or a whole number of times as fast, at once.

    Whoever calls ``scheduler.step()`` twice, or once a process, does that. Kinks of a schedule (the end of a warmup)
    turn it, or stop it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._step = self._rate = self._speed = math.nan
        self._times = 1

    def is_broken(self, measured: Mapping[str, float]) -> bool | None:
        step, rate = measured.get("step", math.nan), measured.get("learning_rate", math.nan)
        speed = (rate - self._rate) / (step - self._step) if step != self._step else math.nan
        self._step, self._rate = step, rate
        ratio = speed / self._speed if self._speed else math.nan
        times = round(ratio) if math.isfinite(ratio) else 0
        if times >= 1 and abs(ratio - times) <= STEADY * times:
            self._speed, self._times = speed / times, times
            return times > 1
        self.begin_anew()
        self._speed, self.broken = speed, 0
        return None

    def change(self) -> SettingChange:
        return SettingChange(SCHEDULE, 1.0, float(self._times))

    def begin_anew(self) -> None:
        super().begin_anew()
        self._speed = math.nan


class RateLeap(Invariant):
    """The learning rate does not leap, threefold at once, above all that the run has had.

    A restart comes back to what it has had (:class:`~rmetric.robust.context.Restarts`).
    """

    def __init__(self) -> None:
        super().__init__()
        self._now = self._before = math.nan
        self._largest = 0.0

    def is_broken(self, measured: Mapping[str, float]) -> bool | None:
        self._now = measured.get("learning_rate", math.nan)
        if not 0.0 < self._now < math.inf:
            return None
        return self._now >= RATE_FACTOR * self._before and self._now > SAME_RATE * self._largest

    def learn(self, measured: Mapping[str, float]) -> None:
        self._before, self._largest = self._now, max(self._now, self._largest)

    def change(self) -> SettingChange:
        return SettingChange(RATE, self._before, self._now)

    def begin_anew(self) -> None:
        super().begin_anew()
        self._before = math.nan
