"""λ of the robust R-Metric: hardware events by worker, and lasting slowdown."""

from __future__ import annotations

import math

from rmetric.measurements import Observation, reader
from rmetric.robust.reference import SortedWindow, logarithm

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
"""Incidents of one record, at most: beyond any machine's; keeps sums finite."""
OF_ONE_WORKER = 0.7
"""Additional weight of an event whose worker is known. Of w healthy workers the same one is hit again with probability
1 / w, an ailing one for certain: ln w more, in units of ln 7.5. Of four workers; with more it is more."""
SLOWDOWN_RECORDS = 9
"""Records that make the present step time: a stall has a few slow steps, and five of nine are a slow machine."""
JITTER_S = 0.02
"""Seconds by which an operating system or another process may delay a step; one of milliseconds is no slower for it."""


class Rarity:
    """Weight of an incident of a kind: the rarer it was in this run, the larger.

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
        """Sums of the workers that have more than anybody; by text, as a checkpoint holds it."""

    @property
    def quiet(self) -> bool:
        """Whether nothing is left of any event."""
        return not self._of_anybody and not self._of_worker

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


class Slowdown:
    r"""Logarithm of the present step time over the usual one: a factor, whatever the scatter of the steps before.

    .. math:: \tilde{x}_{t-8 \dots t} - \tilde{x}_{\text{the window before}}, \qquad x = \ln(\text{seconds a step})

    A z-score would not do here. Where steps take the same time to within a per cent, every change is many scales; where
    a machine is shared none is. What matters is the factor.

    Parameters
    ----------
    window, warm_up
        Values that make the usual step time, and that must be there before the first score.

    Examples
    --------
    >>> slowdown = Slowdown(window=20, warm_up=10)
    >>> for _ in range(20):
    ...     _ = slowdown.update(math.log(0.02))
    >>> [round(slowdown.update(math.log(0.06)), 1) for _ in range(6)]
    [0.0, 0.0, 0.0, 0.0, 1.1, 1.1]
    """

    def __init__(self, *, window: int, warm_up: int) -> None:
        self.warm_up = warm_up
        self.recent = SortedWindow(SLOWDOWN_RECORDS)
        """ln(seconds) of the last records, which make the present step time."""
        self.usual = SortedWindow(window)
        """The same of those before, which make the usual one."""

    def update(self, log_time: float) -> float:
        """The factor's logarithm with the next value; NaN for one that was not measured and during the warm-up."""
        if not math.isfinite(log_time):
            return log_time
        if len(self.recent) == SLOWDOWN_RECORDS:
            self.usual.add(self.recent.oldest)
        self.recent.add(log_time)
        return self.recent.middle - self.usual.middle if len(self.usual) >= self.warm_up else math.nan


class Incidents:
    """A CUSUM of hardware events, of the worker that has most of them.

    An event counts the more, the rarer events were in this run (:class:`Rarity`). One without ``event_worker`` may be
    that of any. Where the log has no count of events (``hardware_events``), a change of ``lambda`` means that there was
    one.
    """

    reads = ("hardware_events", "event_worker", "lambda")

    def __init__(self) -> None:
        self._incidents, self._rarity = WorkerIncidents(), Rarity()
        self._step: int | None = None
        self.rate = math.nan
        """The latest known λ; NaN: none."""
        self._counted = False

    @property
    def quiet(self) -> bool:
        """Whether nothing is left of any event."""
        return self._incidents.quiet

    @property
    def measured(self) -> bool:
        """Whether anything of :attr:`reads` was."""
        return self._counted or self.rate == self.rate

    def update(self, step: int, events: float, worker: float, rate: float) -> float:
        """The sum with what the next record has of :attr:`reads`; NaN as long as nothing was measured."""
        steps = 1 if self._step is None else step - self._step
        self._step = step
        events = self._events_of(events, rate)
        weight = self._rarity.weigh(steps, events)
        if events and worker == worker:
            incidents = self._incidents.update(steps, of_worker=weight + OF_ONE_WORKER * events, worker=worker)
        else:
            incidents = self._incidents.update(steps, of_anybody=weight)
        return incidents if self.measured else math.nan

    def _events_of(self, events: float, rate: float) -> float:
        """Hardware events of a record."""
        before = self.rate
        if rate == rate:
            self.rate = rate
        if events == events:
            self._counted = True
            return events
        if self._counted or rate != rate:
            return 0.0
        return 1.0 if rate != before and before == before else 0.0


class HardwareEvidence:
    """Statistics of λ: a CUSUM of hardware events, and the factor of a slow-down."""

    statistics = ("hardware_events.drift", "step_time_s.slowdown")
    reads = (*Incidents.reads, "step_time_s")
    _read = staticmethod(reader(reads))

    def __init__(self, window: int, warm_up: int) -> None:
        self._window, self._warm_up = window, warm_up
        self.incidents = Incidents()
        """Of all that the run has seen."""
        self.forget_times()

    def forget_times(self) -> None:
        """Learn anew how long a step takes; what a machine has done stays known."""
        self.slowdown = Slowdown(window=self._window, warm_up=self._warm_up)
        """Of the records since step times were learned anew."""

    def update(self, observation: Observation) -> tuple[float, ...]:
        """The statistics of the next record."""
        *events, step_time_s = self._read(observation)
        incidents = self.incidents.update(observation.step, *events)
        return incidents, self.slowdown.update(logarithm(step_time_s + JITTER_S))
