"""λ of the robust R-Metric: hardware events and slow steps."""

from __future__ import annotations

import math

from rmetric.records import Observation
from rmetric.robust.cusum import Cusum
from rmetric.robust.logarithm import logarithm
from rmetric.robust.pace import Pace
from rmetric.robust.reference import RobustReference
from rmetric.robust.signal import CLIP

STRAY_PER_STEP, AILING_PER_STEP = 1 / 150, 1 / 20
"""Incidents a step of a machine whose stray errors mean nothing, and of one that is about to be lost."""
LOG_RATIO = math.log(AILING_PER_STEP / STRAY_PER_STEP)
"""Evidence of one incident."""
ALLOWANCE = (AILING_PER_STEP - STRAY_PER_STEP) / LOG_RATIO
"""A step; with it the CUSUM of the counts is the likelihood ratio of the two rates, up to a factor."""
REPEATED = 0.7
"""What an event counts more if its worker has just reported another. Of w healthy workers the same one is hit again
with probability 1 / w, an ailing one for certain: ln w more, in units of ln 7.5. Of four workers; with more it is more.
"""
INCIDENTS_CEILING = 10.0
"""Well above what stray events of a healthy machine add up to, or both would end at the same height; the evidence of
the worst burst fades within some 470 quiet steps."""
MOST_INCIDENTS = 1e6
"""Of one record: beyond any machine's; keeps sums finite."""
SLOW_WINDOW, SLOW_WARM_UP = 32, 24
"""Records: a shared machine changes its pace, and the level has to follow within half of this."""
SLOW_SCALES, SLOW_FACTOR = 8.0, 1.5
"""How far above its level a slow step is: so many robust scales of the logarithm, and at least this factor."""
SLOW_EXCESS = 1.0
"""What a slow step counts more at most: the logarithm of its factor beyond 1.5. Who shares a machine loses a half or
two thirds of it; a stall has no such limit. Of healthy real steps 2.5 in 1,000 are slow and 0.1 in 1,000 take 4 times
as long, of those of an ailing worker 72 and 19 (fit half of the real study)."""
SLOW_APART_STEPS = 10
"""Slow steps that are no further apart are one incident: where a machine is shared they come in bursts."""
STEP_TIME_FLOOR = 0.03
"""Of the logarithm: changes of 3 % are nobody's concern."""


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


class HardwareEvidence:
    """Statistics of λ: a CUSUM of incidents, and the factor of a slow-down.

    An incident is a hardware event, or a slow step after calm ones; an event of a worker that has just reported
    another counts more. Each kind counts the more, the rarer it was in this run (:class:`Rarity`). Where the log has no
    count of events (``hardware_events``), a change of ``lambda`` means that there was one. One incident is everyday
    life; what tells an ailing machine is that the next one follows soon. A change of pace counts as one slow step and
    no more: a shared machine has those, and so has a run that is resumed.

    **Source:** for counts, Lucas, "Counted data CUSUM's", Technometrics 27 (1985).
    """

    statistics = ("hardware_events.drift", "step_time_s.pace")
    reads = ("hardware_events", "repeated_events", "lambda", "step_time_s", "step_time_max_s")

    def __init__(self, window: int, warm_up: int) -> None:
        self._incidents = Cusum(allowance=ALLOWANCE, cap=math.inf, ceiling=INCIDENTS_CEILING)
        self._pace = RobustReference(window=SLOW_WINDOW, warm_up=SLOW_WARM_UP, floor=STEP_TIME_FLOOR, clip=CLIP)
        self._step_time = Pace(window=window, warm_up=warm_up)
        self._step: int | None = None
        self._rate = math.nan
        self._event_rarity, self._slow_rarity = Rarity(), Rarity()
        self._last_slow: int | None = None
        self._counted = False

    def update(self, observation: Observation) -> tuple[float, ...]:
        """The statistics of the next record."""
        steps = 1 if self._step is None else observation.step - self._step
        self._step = observation.step
        longest = observation["step_time_max_s"]
        log_time = logarithm(longest if longest == longest else observation["step_time_s"])
        excess = self._slow_excess(log_time, observation.step)
        events, repeated = self._events_of(observation)
        incidents = self._event_rarity.weigh(steps, events) + REPEATED * repeated
        incidents += self._slow_rarity.weigh(steps, excess is not None) + (excess or 0.0)
        pace = self._step_time.update(logarithm(observation["step_time_s"]))
        return self._incidents.update(incidents, steps), pace

    def _slow_excess(self, log_time: float, step: int) -> float | None:
        """How far beyond :data:`SLOW_FACTOR` a slow step is; ``None`` if it is none, or another has just been."""
        score = self._pace.update(log_time)
        log_factor = score * self._pace.scale
        if not log_factor > max(SLOW_SCALES * self._pace.scale, math.log(SLOW_FACTOR)):
            return None
        before, self._last_slow = self._last_slow, step
        if before is not None and step - before <= SLOW_APART_STEPS:
            return None
        return min(log_factor - math.log(SLOW_FACTOR), SLOW_EXCESS)

    def _events_of(self, observation: Observation) -> tuple[float, float]:
        """Hardware events of a record, and how many of them are repeated ones."""
        rate, before = observation["lambda"], self._rate
        if rate == rate:
            self._rate = rate
        events = observation["hardware_events"]
        if events == events:
            self._counted = True
            repeated = observation["repeated_events"]
            return events, repeated if repeated == repeated else 0.0
        if self._counted or rate != rate:
            return 0.0, 0.0
        return (1.0 if rate != before and before == before else 0.0), 0.0
