"""Which of several processes has written a line of a console log."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

_RANK = "rank="
_BY_TURNS = (_RANK, *(f"({digit}" for digit in range(10)))
"""Begin of what may be an epoch, as in ``(1/100) step 3``, or a rank among others, unless the lines take turns."""


@dataclass
class Workers:
    """Who has written the lines of a pattern."""

    lines: Counter[str] = field(default_factory=Counter)
    first: str = ""
    turns: int = 0
    """Lines that another one has written than the line before."""
    _latest: str = ""

    def add(self, worker: str) -> None:
        """The next line."""
        self.first = self.first or worker
        self.turns += worker != self._latest
        self._latest = worker
        self.lines[worker] += 1

    def are_several(self, is_counted: bool) -> bool:
        """Whether they are several processes; ``is_counted``: the lines state a counter."""
        if len(self.lines) < 2:
            return False
        take_turns = self.first.startswith(_BY_TURNS)
        if not take_turns and not self.first[0].isdigit():
            return True
        comes_again = 2 * len(self.lines) <= self.lines.total()
        in_turn = not take_turns or 2 * self.turns > self.lines.total()
        are_ranks = not self.first.startswith(_RANK) or {*self.lines} == {f"{_RANK}{n}" for n in range(len(self.lines))}
        return is_counted and comes_again and in_turn and are_ranks
