"""How lively a run is by itself: what is everyday in it is no surprise."""

from __future__ import annotations

import math
from collections import deque

from rmetric.robust.surprise import EVERYDAY_PER_STEP

APART_STEPS = 50
"""What is no further apart is one episode, as in the strict protocol; and an episode speaks of the run's habit after so
many steps, so that no fault is its own excuse."""


class Habit:
    """Takes off a statistic's surprise what the run's own past explains; streams.

    The tails say how often healthy runs show as much as that. Another optimizer or machine makes a run livelier than
    those, and it tells so by how often it has surprised a little. With k such episodes where e were to be expected:

    .. math:: s' = s - \\log_{10} \\max\\Big(1, \\frac{k + 1}{e + 1}\\Big), \\qquad e = 0.01 \\cdot steps

    **Source:** posterior mean of a Poisson rate, in units of the expected one, under its conjugate prior Gamma(1, 1): a
    run is taken to be like the others until it says otherwise. A calm run earns nothing by it.

    >>> habit = Habit()
    >>> [round(habit.temper(step, 1.0), 2) for step in (100, 160, 220, 280, 340)]
    [1.0, 0.74, 0.75, 0.76, 0.76]
    """

    def __init__(self) -> None:
        self._since: int | None = None
        self._last: int | None = None
        self._fresh: deque[int] = deque()
        self._episodes = 0

    def temper(self, step: int, surprise: float) -> float:
        """Surprise of a record, at least 0, less what the run's habit explains; infinite if it is infinite.

        Parameters
        ----------
        step
            Of the record. The first one that is given is where the statistic was first judged.
        surprise
            Decades, at least 0; records without any may be left out.
        """
        if self._since is None:
            self._since = step
        if not surprise:
            return 0.0
        if self._last is None or step - self._last > APART_STEPS:
            self._fresh.append(step)
        self._last = step
        known = step - APART_STEPS
        while self._fresh and self._fresh[0] <= known:
            self._fresh.popleft()
            self._episodes += 1
        expected = EVERYDAY_PER_STEP * max(0, known - self._since)
        ratio = (self._episodes + 1.0) / (expected + 1.0)
        return max(0.0, surprise - math.log10(ratio)) if ratio > 1.0 else surprise
