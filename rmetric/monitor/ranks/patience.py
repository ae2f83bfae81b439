"""How long a process may stay where it is before that is a hang."""

from __future__ import annotations

from collections import deque

FACTOR = 10.0
WINDOW = 300
SETTLED_STEPS = 10
"""Steps after which the run's own pauses are known; the first ones allocate, compile, find each other."""


class Patience:
    r"""An adaptive time-out.

    .. math:: \max(floor,\; 10 \max(\text{pauses between two changes of phase, among the recent}))

    A pause that turned out to be harmless thus makes it longer.

    Parameters
    ----------
    floor_s
        Shortest patience, seconds.
    startup_s
        Patience in the first steps, seconds.

    >>> patience = Patience(floor_s=60.0, startup_s=600.0)
    >>> patience.seconds(steps=3), patience.seconds(steps=50)
    (600.0, 60.0)
    >>> patience.note(12.0)
    >>> patience.seconds(steps=50)
    120.0
    """

    def __init__(self, floor_s: float, startup_s: float) -> None:
        self._floor_s, self._startup_s = floor_s, startup_s
        self._pauses_s: deque[float] = deque(maxlen=WINDOW)

    def note(self, pause_s: float) -> None:
        """Take in the longest pause since the last call."""
        self._pauses_s.append(pause_s)

    def seconds(self, steps: int) -> float:
        """The patience of a process that has made so many steps."""
        if steps < SETTLED_STEPS:
            return self._startup_s
        return max(self._floor_s, FACTOR * max(self._pauses_s, default=0.0))
