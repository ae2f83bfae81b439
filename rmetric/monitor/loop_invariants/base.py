"""What holds in every step, how long it has held, and when its break is news."""

from __future__ import annotations

import math
import statistics
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import Any

from rmetric.monitor.changes import SettingChange

HELD, BROKEN = 32, 2
"""Measurements in a row in which an invariant must have held, and in which it must then be broken, to be news."""
HELD_AGAIN, NEVER = 128, 2**30
"""The first of these where it has been broken by itself, once; each further time twice as many are asked for, up to so
many that no run has them."""


class Invariant(ABC):
    """Something that holds in every step, how long it has held, and since when it is broken."""

    by_chance = False
    """Whether it may be broken by itself, once and now and then."""

    breaks = BROKEN
    """Measurements in a row in which it must be broken to be news."""
    due = HELD
    """Measurements in a row in which it must have held."""

    def __init__(self) -> None:
        self.held = self.broken = 0
        self.known = False
        """Whether it has been broken for as long as is news."""

    @abstractmethod
    def is_broken(self, measured: Mapping[str, float]) -> bool | None:
        """Whether the invariant is broken in a step with these measurements; ``None``: they do not tell."""

    @abstractmethod
    def change(self) -> SettingChange:
        """Words for what has changed."""

    def begin_anew(self) -> None:
        """Forget what was usual, and how long."""
        self.held = 0

    def learn(self, measured: Mapping[str, float]) -> None:  # noqa: B027 - most compare with nothing
        """Take in, as usual, the step in which it was just found to hold."""

    def update(self, measured: Mapping[str, float]) -> SettingChange | None:
        """Take in a step; returns what is news."""
        broken = self.is_broken(measured)
        if broken is None:
            return None
        if not broken:
            self.learn(measured)
            if self.broken:
                self.held = self.broken = 0
                if self.by_chance:
                    self.due = min(max(HELD_AGAIN, 2 * self.due), NEVER)
            self.held += 1
            return None
        self.broken += 1
        if self.broken < self.breaks:
            return None
        news = self.change() if self.broken == self.breaks and self.held >= self.due and not self.known else None
        self.known = True
        self.begin_anew()
        return news


class Remembered(Invariant):
    """A number that is compared with those of the last 32 measurements in which the invariant held."""

    by_chance = True

    def __init__(self) -> None:
        super().__init__()
        self._usual: deque[Any] = deque(maxlen=HELD)
        self._now = math.nan

    def begin_anew(self) -> None:
        super().begin_anew()
        self._usual.clear()

    def learn(self, measured: Mapping[str, float]) -> None:
        self._usual.append(self._now)


class OfLate(Remembered):
    """A number that does not lie beside those of late."""

    @abstractmethod
    def _value(self, measured: Mapping[str, float]) -> float:
        """The number of a step with these measurements; NaN: they do not tell."""

    @abstractmethod
    def _is_far(self, least: float, most: float) -> bool:
        """Whether it lies beside none from the smallest to the largest of late."""

    @property
    def _middle(self) -> float:
        return statistics.median_high(self._usual) if self._usual else math.nan

    def is_broken(self, measured: Mapping[str, float]) -> bool | None:
        self._now = self._value(measured)
        if math.isnan(self._now):
            return None
        return self._is_far(min(self._usual, default=self._now), max(self._usual, default=self._now))


def in_short(norm: float) -> float:
    """A norm without the rounding of single precision.

    >>> in_short(0.04999992)
    0.05
    """
    return float(f"{norm:.4g}")
