"""Limits that keep a repair from costing more than it saves."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Budget:
    """So many a step in the long run, and a few at once: a bucket that fills while nothing happens."""

    share: float
    """A step; 0.005 are five in a thousand steps."""
    burst: float
    """As many at once as fit into the full bucket, which it is in the beginning."""
    _left: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._left = self.burst

    def tick(self) -> None:
        """One step has passed."""
        self._left = min(self.burst, self._left + self.share)

    def take(self) -> bool:
        """Spend one, if there is one."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def give_back(self) -> None:
        """The one taken was well spent."""
        self._left = min(self.burst, self._left + 1.0)


@dataclass(kw_only=True)
class Interventions:
    """At most so many in a run, and so many in a row of steps."""

    most: int
    in_a_row: int
    _done: int = field(init=False, repr=False, default=0)
    _row: int = field(init=False, repr=False, default=0)
    _last_step: int = field(init=False, repr=False, default=-1)

    def allow(self, step: int) -> bool:
        """Whether one more may be made in this step; counts it then. A row ends with a step that does not ask."""
        self._row = self._row + 1 if step == self._last_step + 1 else 1
        self._last_step = step
        if self._done >= self.most or self._row > self.in_a_row:
            return False
        self._done += 1
        return True
