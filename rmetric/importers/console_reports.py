"""What the lines before a report of a console log say of it, and those behind it."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from rmetric.importers.rows import Row, epoch_of

MOST_WAITING = 64
"""Reports that wait for one with a counter."""


@dataclass
class Stated:
    """What lines of a log have stated of the reports below them, each by its name."""

    epoch: dict[str, Any] = field(default_factory=dict)
    counter: dict[str, Any] = field(default_factory=dict)
    rate: dict[str, Any] = field(default_factory=dict)
    rated: dict[str, Any] = field(default_factory=dict)
    """The epoch in which a rate was stated last."""
    announced: dict[str, Any] = field(default_factory=dict)
    """Where the evaluation below stands."""
    trained: dict[str, Any] = field(default_factory=dict)
    """The latest report of the training."""

    def completing(self, found: dict[str, Any], meant: Set[str], *, is_counted: bool) -> dict[str, Any]:
        """A report with what it lacks."""
        trains = "training_loss" in meant
        if not is_counted:
            found = (self.counter if trains else self.announced) | found
        if trains:
            found = found if "learning_rate" in meant else self.rate | found
        found = self.epoch | found if self.epoch and epoch_of(found) is None else found
        if trains:
            self.trained, self.announced = found, {}
        return found

    def count(self, counter: dict[str, Any]) -> None:
        """Take up the counter of the next report; in the epoch of the latest one it may be of an evaluation's batch."""
        self.counter = counter
        if self.epoch and epoch_of(self.epoch) == epoch_of(self.trained):
            self.announced = counter

    def epoch_without_rate(self) -> dict[str, Any]:
        """The epoch; empty if a rate was stated in it before. To be asked once of each rate."""
        before, self.rated = self.rated, self.epoch
        return {} if before == self.epoch else self.epoch


class Waiting:
    """Reports for which something may stand behind them: a learning rate, or the counter of them all."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._lack_rate: list[Row] = []

    def add(self, row: Row, *, lacks_rate: bool = False) -> None:
        """The next one; ``lacks_rate``: it is of the training, and states no learning rate itself."""
        self._rows.append(row)
        if lacks_rate:
            self._lack_rate.append(row)

    def take_rate(self, rate: Mapping[str, Any], counts: Mapping[str, Any]) -> None:
        """A learning rate, of those that have stated the very counts that stand beside it."""
        for row in self._lack_rate if counts else ():
            if counts.items() <= row.values.items():
                row.values |= rate

    def take_counter(self, counter: Mapping[str, Any]) -> None:
        """The counter of all."""
        for row in self._rows:
            row.values = {**counter, **row.values}

    @property
    def are_many(self) -> bool:
        """Whether so many reports wait that they must be released."""
        return len(self._rows) >= MOST_WAITING

    def released(self) -> list[Row]:
        """All of them, which wait no longer."""
        rows, self._rows, self._lack_rate = self._rows, [], []
        return rows
