"""Events of a run: the alerts of the default detectors, merged where they are one event, each with its kind.

A record is one tick of the clock here, however many steps it stands for: alerts with fewer than 50 quiet records
between them are one event. Hardware events, slow steps and what the model does are apart; and what is of another kind
than an event that has passed is another one, for a user goes back to before it began. What follows a setting that
changed may come of it, and is the same event.
"""

from __future__ import annotations

import copy
import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmetric.advice import KINDS_OF_MEASUREMENTS
from rmetric.compiled import pays
from rmetric.detectors import ROBUST, default_detectors
from rmetric.detectors.numerics import Numerics, zero_gradient
from rmetric.episodes import REARM_STEPS, EpisodesByCause
from rmetric.measurements import Observation
from rmetric.records import Observations
from rmetric.robust.hardware import SLOWDOWN_RECORDS
from rmetric.robust.loss import UNIFORM_NATS
from rmetric.states.series import LATEST

GRAVE = ("UNIFORM_ANSWER", "ZERO_UPDATE", "ZERO_GRADIENT", "NOT_FINITE")
"""Kinds that name an event whatever else happens in it, the gravest last."""
GRAVEST_LOSS_LAST = ("validation_loss", "training_loss")
"""Measurements that are graver than others where they are not finite, the gravest last."""
OF_MACHINE = frozenset({"HARDWARE_EVENTS", "SLOW_STEPS"})
"""Kinds that say nothing of the model."""
REMEMBERED = (*KINDS_OF_MEASUREMENTS, "learning_rate")
"""Measurements that an event may be about: a learning rate that is not finite is one, too."""


def _is_of(kind: str) -> str:
    """What a kind of event is about: events of one thing are apart from those of another, and go on beside them."""
    return kind if kind in OF_MACHINE else "the model"


IS_OF = {name: _is_of(KINDS_OF_MEASUREMENTS.get(name, "")) for name in REMEMBERED}
"""Measurement → the same."""
PER_RATE = "update_rms / learning_rate"
"""What an alert for updates is about where neither of both rose, but their ratio did."""
HIT = ("event_worker", "hardware_events")
"""Measurements that tell whose hardware fails."""
PART_RECORDS = 2048
"""Records that are taken in together where no detector alerts in them."""
RISES = frozenset({"UPDATE_RISE", "SLOW_STEPS"})
"""Kinds that last where their measurement stays up, which detectors get used to; gradient norms of healthy runs do."""
BACK = 3
"""Quiet records at least, after which an event may be over before the next alert would be another one."""
EXPLODED = 1000.0
"""Multiple of the largest loss before an event above which what it was about is no matter of harder data."""


class Change(NamedTuple):
    """A setting that changed, as the log has it."""

    step: int
    setting: str
    told: str
    """What it was before, and what it is now, in words."""


@dataclass(kw_only=True)
class Event:
    """An episode of alerts, whichever detector raised them."""

    kind: str
    """One of :data:`rmetric.advice.ADVICE`."""
    measurement: str
    """Measurement that stood out."""
    step: int
    """Step of the first alert."""
    until: int
    """Step of the latest alert."""
    record: int
    """Number of the record of the first alert, from 0."""
    last_record: int
    """Number of the record of the latest alert."""
    value: float
    """The measurement at the first alert of this kind; infinite: not finite; of step times the median of nine."""
    before: float
    """Its median over the 50 records before, or as many as there are; NaN: not measured."""
    known_before: int
    """How many these are."""
    before_is: str
    """``median``; or ``lowest``, of a loss that rises to less than their median: it has risen before."""
    at: int
    """Step of ``value``."""
    highest: float
    """The largest one at an alert of its subject."""
    surprise: float
    """Highest score of the robust R-Metric: decades of rarity; NaN if only others alerted."""
    alerts: int = 1
    """Records with an alert."""
    latest_alerts: int = 1
    """Those of its latest stretch: since it had last passed, if it has come back."""
    alike: int = 1
    """Those of its subject."""
    first: Event | None = None
    """What it was before a graver kind renamed it; ``None``: the same."""
    changed: bool = False
    """Whether the records say that a setting changed in it."""
    incidents: Counter[int] = field(default_factory=Counter)
    """Worker → hardware events of it, from 50 records before the first alert on; of machine's events alone."""
    changes: tuple[Change, ...] = ()
    """Settings that the log says changed in it; of the model's events alone."""
    rate: str = ""
    """What the records say of a learning rate that rose; empty: nothing, or the log does."""
    kept: tuple[str, ...] = ()
    """Names of the settings among them of which the log does not say that they were taken back."""
    rate_now: float = math.nan
    """Highest learning rate at its alerts; at those since it was renamed. NaN: not measured."""
    rate_before: float = math.nan
    """Median of the rates before, as :attr:`before`."""
    over: bool = False
    """Whether it has passed, as far as its own measurement tells."""
    back: int | None = None
    """Step by which it was back for longer than it was up (:func:`~rmetric.diagnosis.hindsight.back_at`).

    ``None``: it was not, or nobody looked."""
    lasts_to: int | None = None
    """Last step of the run if it is so still, though no detector may alert any more; ``None``: it may have passed."""
    times: float = 0.0
    """How many times as high as it ever was before the event the loss is at the end, if it is that since this event."""

    @property
    def exploded(self) -> bool:
        """Whether the loss has come to stand orders of magnitude above all that it was before."""
        return self.times > EXPLODED

    @property
    def worker(self) -> int | None:
        """Worker that reported most of the hardware events; ``None``: not known."""
        return max(self.incidents, key=self.incidents.__getitem__, default=None)

    @property
    def last_step(self) -> int:
        return self.until if self.lasts_to is None else max(self.until, self.lasts_to)

    @property
    def subject(self) -> tuple[str, str]:
        """Kind of the event, and of what is not finite the measurement: one says nothing of another."""
        return self.kind, self.measurement if self.kind == "NOT_FINITE" else ""

    def is_back(self, now: float | NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether what it was about is nearer now to where it was before than to where the event began."""
        return np.abs(now - self.before) < np.abs(now - self.value)

    def is_up(self, now: float) -> bool:
        """Whether what rose in it is no nearer now to where it was before."""
        return now >= 0.5 * (self.before + self.value) > self.before

    def go_on(self, later: Event, *, again: bool) -> None:
        """Take in a later record of the same event; a graver kind renames it, and its numbers are told.

        ``again``: it had passed, and comes back.
        """
        if later.subject == self.subject:
            self.alike += 1
            self.highest = max(self.highest, later.highest if later.measurement == self.measurement else -math.inf)
        self.rate_now = float(np.fmax(self.rate_now, later.rate_now))
        if _gravity(later) > _gravity(self):
            self.first = self.first or copy.copy(self)
            self.kind, self.measurement, self.alike = later.kind, later.measurement, 1
            self.value, self.before, self.at, self.highest = later.value, later.before, later.at, later.highest
            self.known_before, self.before_is = later.known_before, later.before_is
            self.rate_now, self.rate_before = later.rate_now, later.rate_before
        self.until, self.last_record = later.until, later.last_record
        self.changed |= later.changed
        self.incidents.update(later.incidents)
        self.surprise = float(np.fmax(self.surprise, later.surprise))
        self.alerts += 1
        self.latest_alerts = 1 if again else self.latest_alerts + 1


def _gravity(event: Event) -> tuple[int, ...]:
    """Gravity by kind; of what is not finite a loss is the gravest: steps with such a gradient may be left out."""
    return tuple(
        order.index(told) if told in order else -1
        for order, told in zip((GRAVE, GRAVEST_LOSS_LAST), event.subject, strict=True)
    )


class EventSeeker:
    """Finds the events of one run while its records arrive."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        """In their order."""
        self.records = 0
        """Records so far."""
        self._detectors = default_detectors()
        self._episodes = EpisodesByCause()
        self._latest: dict[str, Event] = {}
        """What events are about → the latest of them."""
        self._recent: dict[str, deque[tuple[int, float]]] = {name: deque(maxlen=REARM_STEPS) for name in REMEMBERED}
        """Finite values of late, each with the number of its record: of records with no alert about such things."""
        self._times: deque[float] = deque(maxlen=SLOWDOWN_RECORDS)
        """The latest step times of all records: those that detectors judge by."""
        self._incidents: deque[tuple[int, int, float]] = deque(maxlen=REARM_STEPS)
        """Record, worker and number of the hardware events since the latest alert about such."""

    def extend(self, observations: Observations) -> Iterator[Event]:
        """Judge the next records; the events that begin in them."""
        for begin in range(0, len(observations), PART_RECORDS):
            part = observations.rows(slice(begin, begin + PART_RECORDS))
            if not self._passes_by(part):
                yield from (event for record in part if (event := self.update(record)) is not None)

    def _passes_by(self, observations: Observations) -> bool:
        """Take in records by whole columns if no detector alerts in them, and none has to say why; else nothing."""
        if not pays(len(observations)):
            return False
        ahead = copy.deepcopy(self._detectors)
        if any((detector.extend(observations) > detector.threshold).any() for detector in ahead.values()):
            return False
        self._detectors = ahead
        for name, values in self._recent.items():
            at = np.flatnonzero(np.isfinite(observations[name]))[-REARM_STEPS:]
            values.extend(zip((self.records + at).tolist(), observations[name][at].tolist(), strict=True))
        times = observations["step_time_s"]
        self._times.extend(times[np.isfinite(times)][-SLOWDOWN_RECORDS:].tolist())
        for row in np.flatnonzero(np.isfinite(observations["event_worker"]))[-REARM_STEPS:].tolist():
            self._hit(self.records + row, *(float(observations[name][row]) for name in HIT))
        self.records += len(observations)
        self._episodes.begin(self.records - 1, ())
        return True

    def update(self, observation: Observation) -> Event | None:
        """Judge the next record; the event that begins there, if one does."""
        scores = {name: detector.update(observation) for name, detector in self._detectors.items()}
        raised = {name: score for name, score in scores.items() if score > self._detectors[name].threshold}
        if math.isfinite(time := observation["step_time_s"]):
            self._times.append(time)
        self._hit(self.records, *(observation[name] for name in HIT))
        seen = self._event(observation, raised) if raised else None
        begun = self._take_in(seen) if seen is not None else None
        if seen is None:
            self._episodes.begin(self.records, ())
        self._remember(observation, seen)
        self.records += 1
        return begun

    def _remember(self, observation: Observation, seen: Event | None) -> None:
        """Keep values of a record, but for those that an alert is about.

        What else there is may have changed with the begin of that event, which hides it; to what has, detectors get
        used within as many records.
        """
        if seen is not None and self.records - self._latest[_is_of(seen.kind)].record < REARM_STEPS:
            return
        for name, values in self._recent.items():
            if (seen is None or IS_OF[name] != _is_of(seen.kind)) and math.isfinite(value := observation[name]):
                values.append((self.records, value))

    def _take_in(self, seen: Event) -> Event | None:
        """The event that a record with an alert begins; ``None`` if it goes on with the one before."""
        of = _is_of(seen.kind)
        if not self._episodes.begin(self.records, (of,)):
            before = self._latest[of]
            over = self.is_over(before)
            if seen.subject == before.subject or before.changed or not over:
                before.go_on(seen, again=over)
                return None
        self._latest[of] = seen
        self.events.append(seen)
        return seen

    def _hit(self, record: int, worker: float, number: float) -> None:
        """Note the hardware events of a record whose worker is known; one where they are not counted."""
        if math.isfinite(worker) and number != 0.0:
            self._incidents.append((record, int(worker), number if math.isfinite(number) else 1.0))

    def _claimed(self) -> Counter[int]:
        """Worker → hardware events of late, which belong to the present alert and to no later one."""
        by_worker: Counter[int] = Counter()
        for record, worker, number in self._incidents:
            by_worker[worker] += int(number) if record > self.records - REARM_STEPS else 0
        self._incidents.clear()
        return by_worker

    def is_over(self, event: Event) -> bool:
        """True if an event has passed: the next alert would be another one, or all is as before.

        As before is a measurement that lies nearer to where it was than to where the event began, in the median of the
        quiet records since: of three at least, and of as many as its latest stretch had with an alert.
        """
        if self.records - 1 - event.last_record >= REARM_STEPS:
            return True
        since = self._since(event)
        if len(since) < max(BACK, event.latest_alerts):
            return False
        return bool(event.is_back(median(since)))

    def stands(self, event: Event) -> bool:
        """Whether a measurement that rose in an event is no nearer now to where it was before, nor was so for long.

        What rises later, once it was back for longer than it was up, is another event, though no detector may alert.
        """
        latest = self._since(event)[-LATEST:]
        if event.kind not in RISES or event.back is not None or len(latest) < LATEST:
            return False
        return event.is_up(median(latest))

    def _since(self, event: Event) -> list[float]:
        return [value for record, value in self._known(event.measurement) if record > event.last_record]

    def _known(self, measurement: str) -> Iterable[tuple[int, float]]:
        """Values of late, each with the number of its record."""
        if measurement != PER_RATE:
            return self._recent[measurement]
        rates = dict(self._recent["learning_rate"])
        return [(at, size / rate) for at, size in self._recent["update_rms"] if (rate := rates.get(at, 0.0)) > 0.0]

    def _before(self, measurement: str) -> float:
        """Median of the values of late; NaN if there are none."""
        known = [value for _, value in self._known(measurement)]
        return median(known) if known else math.nan

    def _risen(self, observation: Observation) -> str:
        """What rose at an alert for updates: the last one or the rate of the next, by more; else their ratio."""

        def growth(name: str) -> float:
            before = self._before(name)
            return _value(observation, name) / before if before > 0.0 else math.nan

        risen = {name: times for name in ("update_rms", "learning_rate") if (times := growth(name)) > 1.0}
        if risen or not growth(PER_RATE) > 1.0:
            return max(risen, key=risen.__getitem__, default="update_rms")
        return PER_RATE

    def _event(self, observation: Observation, raised: Mapping[str, float]) -> Event:
        cause = next((cause for name in raised if (cause := self._detectors[name].cause)), "")
        kind, measurement = _kind_of(observation, cause, zeros_are_signs=Numerics.name in raised)
        if kind == "UPDATE_RISE":
            measurement = self._risen(observation)
        recent = [value for _, value in self._known(measurement)]
        value, before, before_is = _value(observation, measurement), self._before(measurement), "median"
        if kind == "LOSS_RISE" and value <= before:
            before, before_is = min(recent), "lowest"
        if kind == "SLOW_STEPS" and self._times:
            value = median(self._times)
        return Event(
            kind=kind, measurement=measurement,
            step=observation.step, until=observation.step, at=observation.step,
            record=self.records, last_record=self.records,
            value=value, highest=value,
            before=before, known_before=len(recent), before_is=before_is,
            rate_now=observation["learning_rate"], rate_before=self._before("learning_rate"),
            surprise=raised.get(ROBUST, math.nan),
            changed=observation["settings_changed"] > 0,
            incidents=self._claimed() if kind == "HARDWARE_EVENTS" else Counter(),
        )  # fmt: skip


def _value(observation: Observation, measurement: str) -> float:
    if measurement != PER_RATE:
        return observation[measurement]
    rate = observation["learning_rate"]
    return observation["update_rms"] / rate if rate > 0.0 else math.nan


def _kind_of(observation: Observation, cause: str, *, zeros_are_signs: bool) -> tuple[str, str]:
    """Kind of what stands out in a record that raised an alert, and the measurement.

    Broken numbers name it, whatever the alert was mostly for; else the measurement that it was for does. Gradients of 0
    are broken numbers unless this run has them in health (``zeros_are_signs=False``).

    >>> _kind_of(Observation(7, training_loss=2.0, grad_norm=0.0), "training_loss", zeros_are_signs=True)
    ('ZERO_GRADIENT', 'grad_norm')
    """
    told = (name for name in REMEMBERED if name != "validation_loss" or observation.evaluated)  # else it is held
    broken = next((name for name in told if observation[name] == math.inf), "")
    if broken or observation["non_finite_count"] > 0:
        return "NOT_FINITE", broken or "non_finite_count"
    if zero_gradient(observation) and (zeros_are_signs or cause == "grad_norm"):
        return "ZERO_GRADIENT", "grad_norm"
    if cause == "update_rms" and observation["update_rms"] == 0.0:
        return "ZERO_UPDATE", "update_rms"
    if cause == "uniform_gap" or abs(observation["uniform_gap"]) <= UNIFORM_NATS:
        return "UNIFORM_ANSWER", "uniform_gap"
    return KINDS_OF_MEASUREMENTS.get(cause, "LOSS_RISE"), cause if cause in KINDS_OF_MEASUREMENTS else "training_loss"
