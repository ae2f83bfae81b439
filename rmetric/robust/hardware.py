"""λ of the robust R-Metric: hardware events and slow steps."""

from __future__ import annotations

import math

from rmetric.records import Observation
from rmetric.robust.context import Context
from rmetric.robust.incidents import Rarity, WorkerIncidents
from rmetric.robust.logarithm import logarithm
from rmetric.robust.pace import Pace
from rmetric.robust.reference import CLIP, RobustReference

OF_ONE_WORKER = 0.7
"""What an event counts more where its worker is known. Of w healthy workers the same one is hit again with probability
1 / w, an ailing one for certain: ln w more, in units of ln 7.5. Of four workers; with more it is more."""
SLOW_WINDOW, SLOW_WARM_UP = 32, 24
"""Records: a shared machine changes its pace, and the level has to follow within half of this."""
SLOW_SCALES, SLOW_FACTOR = 8.0, 1.5
"""How far above its level a slow step is: so many robust scales of the logarithm, and at least this factor."""
SLOW_OFFSET, SLOW_SLOPE, SLOW_MOST = -0.9, 2.6, 1.5
"""What a slow step counts more or less: offset + slope · logarithm of its factor beyond 1.5, and that at most. Who
shares a machine loses a half or two thirds of it; a stall has no such limit. A line through the log-likelihood ratios,
in units of ln 7.5: of the slow steps of healthy real control runs 78 % take less than 1.9 times as long as usual, 10 %
more than 2.5 and none 4.5 times; of those of an ailing worker 14, 79 and 50 % (fit half of the real study). The line
goes on to 3; but garbage collections and checkpoints stall healthy runs as well, though none in the fit half, so that
a stall is to be no alert by itself, unless a run has had some 1,500 calm steps."""
SLOW_APART_STEPS = 10
"""Slow steps that are no further apart are one incident: where a machine is shared they come in bursts."""
STALL_FACTOR = 6.0
"""A step that takes as long counts in a burst too: on the fit half's shared machine none took 4.5 times as long."""
STEP_TIME_FLOOR = 0.03
"""Of the logarithm: changes of 3 % are nobody's concern."""


class HardwareEvidence:
    """Statistics of λ: a CUSUM of incidents, of the worker that has most of them, and the factor of a slow-down.

    An incident is a hardware event, or a slow step after calm ones. Each kind counts the more, the rarer it was in this
    run (:class:`rmetric.robust.incidents.Rarity`). A slow step may be that of any worker, and so may an event without
    ``event_worker``. Where the log has no count of events (``hardware_events``), a change of ``lambda`` means that
    there was one. A change of pace counts as one slow step and no more, unless it is sixfold: a shared machine has
    those, and so has a run that is resumed.
    """

    statistics = ("hardware_events.drift", "step_time_s.pace")
    reads = ("hardware_events", "event_worker", "lambda", "step_time_s", "step_time_max_s")

    def __init__(self, window: int, warm_up: int) -> None:
        self._incidents = WorkerIncidents()
        self._pace = RobustReference(window=SLOW_WINDOW, warm_up=SLOW_WARM_UP, floor=STEP_TIME_FLOOR, clip=CLIP)
        self._step_time = Pace(window=window, warm_up=warm_up)
        self._step: int | None = None
        self._rate = math.nan
        self._event_rarity, self._slow_rarity = Rarity(), Rarity()
        self._last_slow: int | None = None
        self._counted = False

    def update(self, observation: Observation, _context: Context) -> tuple[float, ...]:
        """The statistics of the next record."""
        steps = 1 if self._step is None else observation.step - self._step
        self._step = observation.step
        longest = observation["step_time_max_s"]
        log_time = logarithm(longest if longest == longest else observation["step_time_s"])
        excess = self._slow_excess(log_time, observation.step)
        slow = max(0.0, self._slow_rarity.weigh(steps, excess is not None) + (excess or 0.0))
        events, worker = self._events_of(observation), observation["event_worker"]
        weight = self._event_rarity.weigh(steps, events)
        if events and worker == worker:
            incidents = self._incidents.update(
                steps, of_anybody=slow, of_worker=weight + OF_ONE_WORKER * events, worker=worker
            )
        else:
            incidents = self._incidents.update(steps, of_anybody=slow + weight)
        return incidents, self._step_time.update(logarithm(observation["step_time_s"]))

    def _slow_excess(self, log_time: float, step: int) -> float | None:
        """What a slow step counts more than others; ``None`` if it is none, or another has just been."""
        score = self._pace.update(log_time)
        log_factor = score * self._pace.scale
        if not log_factor > max(SLOW_SCALES * self._pace.scale, math.log(SLOW_FACTOR)):
            return None
        before, self._last_slow = self._last_slow, step
        in_burst = before is not None and step - before <= SLOW_APART_STEPS
        if in_burst and log_factor < math.log(STALL_FACTOR):
            return None
        return min(SLOW_OFFSET + SLOW_SLOPE * (log_factor - math.log(SLOW_FACTOR)), SLOW_MOST)

    def _events_of(self, observation: Observation) -> float:
        """Hardware events of a record."""
        rate, before = observation["lambda"], self._rate
        if rate == rate:
            self._rate = rate
        events = observation["hardware_events"]
        if events == events:
            self._counted = True
            return events
        if self._counted or rate != rate:
            return 0.0
        return 1.0 if rate != before and before == before else 0.0
