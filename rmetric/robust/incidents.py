"""Incidents of one worker: what tells an ailing one is that the next comes from it as well, and soon."""

from __future__ import annotations

import math

STRAY_PER_STEP, AILING_PER_STEP = 1 / 150, 1 / 20
"""Incidents a step of a machine whose stray errors mean nothing, and of one that is about to be lost."""
LOG_RATIO = math.log(AILING_PER_STEP / STRAY_PER_STEP)
"""Evidence of one incident."""
ALLOWANCE = (AILING_PER_STEP - STRAY_PER_STEP) / LOG_RATIO
"""A step; with it the CUSUM of the counts is the likelihood ratio of the two rates, up to a factor."""
CEILING = 10.0
"""Well above what stray events of a healthy machine add up to, or both would end at the same height; the evidence of
the worst burst fades within some 470 quiet steps."""
MOST_INCIDENTS = 1e6
"""Of one record: beyond any machine's; keeps sums finite."""


class Rarity:
    """What an incident of a kind counts: the rarer it was in this run, the more.

    .. math:: w = \\max(0, \\ln (p_1 / p_0)) / \\ln 7.5, \\qquad p_0 = (k + 1) / (t + 150)

    with k incidents in the t steps before, and p₁ the rate of an ailing machine; 1 at the beginning of a run.

    >>> rarity = Rarity()
    >>> [round(rarity.weigh(steps, incidents), 2) for steps, incidents in ((1, 1), (300, 0), (1, 1), (10, 1), (1, 1))]
    [1.0, 0.0, 1.2, 1.0, 0.87]
    """

    def __init__(self) -> None:
        self._incidents = self._steps = 0.0

    def weigh(self, steps: int, incidents: float) -> float:
        """Weight of some incidents, so many steps after the last call; 0 for none."""
        before = self._steps
        self._steps += steps
        if not incidents > 0.0:
            return 0.0
        rate = (self._incidents + 1.0) / (before + 1.0 / STRAY_PER_STEP)
        incidents = min(incidents, MOST_INCIDENTS)
        self._incidents += incidents
        return incidents * max(0.0, math.log(AILING_PER_STEP / rate)) / LOG_RATIO


class WorkerIncidents:
    """A CUSUM for each worker: the evidence that it ails, of which the largest counts.

    Stray events hit one worker today and another one tomorrow; summed up over all of them they look like one that ails.
    What cannot be traced to a worker may be that of any, and counts for each.

    **Source:** for counts, Lucas, "Counted data CUSUM's", Technometrics 27 (1985).

    >>> incidents = WorkerIncidents()
    >>> [round(incidents.update(10, of_worker=2.0, worker=worker), 2) for worker in (3.0, 5.0, 3.0)]
    [1.78, 1.78, 3.35]
    >>> round(incidents.update(10, of_anybody=1.0), 2)
    4.14
    """

    def __init__(self) -> None:
        self._of_anybody = 0.0
        self._of_worker: dict[str, float] = {}
        """Of those that have more than anybody; by text, as a checkpoint holds it."""

    def update(self, steps: int, *, of_anybody: float = 0.0, of_worker: float = 0.0, worker: float = math.nan) -> float:
        """The largest sum after so many steps, with the weight of what happened in them."""
        hit = str(worker)
        if of_worker > 0.0:
            self._of_worker.setdefault(hit, self._of_anybody)
        self._of_anybody = _risen(self._of_anybody, of_anybody, steps)
        for name, value in list(self._of_worker.items()):
            self._of_worker[name] = _risen(value, of_anybody + (of_worker if name == hit else 0.0), steps)
            if self._of_worker[name] <= self._of_anybody:
                del self._of_worker[name]  # nothing of its own is left
        return max(self._of_worker.values(), default=self._of_anybody)


def _risen(value: float, weight: float, steps: int) -> float:
    return min(max(0.0, value + weight - ALLOWANCE * steps), CEILING)
