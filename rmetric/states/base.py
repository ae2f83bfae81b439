"""A state of a run: what it is, since when, and how rarely a healthy run shows as much."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rmetric.plain_numbers import finite_numbers
from rmetric.records import Observations

SHIPPED = Path(__file__).with_name("states.json")
"""Scores of healthy runs, as ``python -m studies.states.fit`` writes them."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What speaks for a state in a run, whether or not it suffices."""

    score: float
    """The higher, the less like a healthy run; comparable within one kind of state. 0: nothing speaks for it."""
    since: int
    """Step from which on the state lasts."""
    numbers: Mapping[str, float]
    """Numbers that the score rests on, by name."""
    sentence: str
    """The same in words."""


Recogniser = Callable[[Observations], Evidence | None]
"""Looks for one state in a run so far; ``None``: too few records, or what it reads was not measured."""


@dataclass(frozen=True, kw_only=True)
class State:
    """A state of a run at its latest record, such as dead or overfitting."""

    name: str
    """One of :data:`rmetric.states.RECOGNISERS`."""
    since: int
    """Step from which on it lasts."""
    until: int
    """Step of the latest record."""
    false_alarm_rate: float
    """Share of healthy runs that show as much at some time: (1 + those that do) / (1 + all), of the shipped ones."""
    numbers: Mapping[str, float]
    """Evidence, by name."""
    sentence: str
    """Evidence, in words."""

    @property
    def sure(self) -> float:
        """1 minus the false-alarm rate, in [0, 1]."""
        return 1.0 - self.false_alarm_rate

    @property
    def moved(self) -> bool:
        """Whether a loss that has not fallen has not stayed flat either: what else is found says more."""
        return bool(self.numbers.get("moved"))

    def to_dict(self) -> dict[str, Any]:
        """All of it for JSON; a number that is not finite is left out."""
        return {**vars(self), "numbers": finite_numbers(self.numbers), "sure": self.sure}

    def __str__(self) -> str:
        return f"{self.name} since step {self.since:,}: {self.sentence} ({frequency(self.false_alarm_rate)})"


def frequency(share: float) -> str:
    """How many healthy runs show as much, in words; ``share`` in [0, 1].

    >>> frequency(0.0004631)
    '0.046 % of healthy runs show as much'
    """
    return f"{float(f'{100.0 * share:.2g}'):g} % of healthy runs show as much"


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Scores of one state in healthy runs."""

    runs: int
    """Healthy runs that could be judged."""
    highest: tuple[float, ...]
    """Their highest scores, increasing; enough of them to know every rate up to the budget."""

    def false_alarm_rate(self, score: float) -> float:
        """(1 + healthy runs with at least this score) / (1 + healthy runs); an upper bound, 1, below those kept."""
        at_least = len(self.highest) - bisect_left(self.highest, score)
        return 1.0 if at_least == len(self.highest) < self.runs else (1 + at_least) / (1 + self.runs)


@cache
def calibrations() -> dict[str, Calibration]:
    """State → scores of healthy runs."""
    states: Mapping[str, Any] = json.loads(SHIPPED.read_text(encoding="utf-8"))["states"]
    return {
        name: Calibration(runs=entry["runs"], highest=tuple(entry["highest_scores"])) for name, entry in states.items()
    }
