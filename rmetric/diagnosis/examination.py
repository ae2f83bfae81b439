"""Examination of a run: records in, as they come or all at once; findings out at any time, in bounded memory."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rmetric.advice import setting_in_words
from rmetric.diagnosis.events import OF_MACHINE, Change, Event, EventSeeker
from rmetric.diagnosis.finding import Finding
from rmetric.diagnosis.findings import failed, findings_of, gravest_first
from rmetric.diagnosis.hindsight import back_at, lasts, rise_to_the_end
from rmetric.diagnosis.intervals import UnusualIntervals
from rmetric.diagnosis.not_judged import Measured, not_judged
from rmetric.diagnosis.result import Diagnosis
from rmetric.episodes import REARM_STEPS
from rmetric.importers import LoggedPortions
from rmetric.measurements import Observation
from rmetric.records import FAILURE, NAN_LOSS, START, TERMINAL_EVENTS, Observations, is_converted, step_of
from rmetric.robust.context import APART, Announcements
from rmetric.states import History, states_of
from rmetric.states.series import finite
from rmetric.verdict import CALL_ORDER, REMARKS

NO_END = "the log says no end of the run: it goes on, was killed, or was left by an error"
SETTING_CHANGED = "SETTING_CHANGED"
"""Kind of finding, and name of the line in the log that says what has changed."""
OF_A_RATE, RATE_RISE_FACTOR = frozenset({"LOSS_RISE", "GRADIENT_RISE", "UPDATE_RISE", "NOT_FINITE"}), 3.0
"""Kinds of event in which a learning rate that rose is named, and how many times it has to be as high."""
OF_NAN_LOSS = frozenset({"NOT_FINITE", "DEAD"})
"""Kinds of finding that a failure of the reason NAN_LOSS repeats."""
LEARNED_ANEW = "what is usual was learned anew from there on"
SLOWER, TENTHS, LEAST_TIMES = 1.5, 10, 200
"""How many times as long steps take in the last tenth of a run as in the first for it to be said, and step times that
are enough to say so: what comes by degrees is no event."""
LONGEST, MOST_CHANGES, MOST_ANNOUNCED = 100, 100, 5
"""Characters of a text that is told, changes of settings that are remembered, and changes that were announced: memory
is bounded whatever a log says."""


class Examination:
    """Judges one run while its records arrive; the size of the portions changes nothing.

    >>> import numpy as np
    >>> examination = Examination()
    >>> losses = np.append(2.0 - 0.001 * np.arange(200), np.nan)
    >>> losses = np.where(np.isnan(losses), np.inf, losses)
    >>> events = examination.extend(Observations(np.arange(201), {"training_loss": losses}))
    >>> [event.kind for event in events], examination.diagnosis("run").findings[0].step
    (['NOT_FINITE'], 200)
    """

    def __init__(self) -> None:
        self._seeker = EventSeeker()
        self._history = History()
        self._measured: dict[str, Measured] = {}
        self._changes: dict[Change, None] = {}
        """Settings that changed: once each, in the order in which the log told of them."""
        self._settings_before: dict[str, tuple[int, Any]] = {}
        """Setting that has changed → in which step, and what it was before; left out as soon as it is so again."""
        self._remarks: dict[str, None] = {}
        """What the run's monitor has told of the training loop, once each."""
        self._announcements, self._too_often = Announcements(), False
        self._announced: list[int] = []
        """Steps of the first records with a change that was announced, and one more if there are more."""
        self._intervals = UnusualIntervals(MOST_ANNOUNCED + 1)
        self._trained = math.nan
        """How many tensors are trained, as far as records say."""
        self._fewer: list[str] = []
        """By when they became fewer: a step and the numbers; one more than are told if there are more."""
        self._begun = self._ended = False
        """Whether the log, of a kind that says both, says that the run begins, and that it ends."""
        self._failure: Mapping[str, Any] | None = None
        """The log's latest line beside records, if it says that the run failed: one that goes on says more."""
        self._first_step: int | None = None
        self._last_step: int | None = None

    def extend(self, observations: Observations) -> list[Event]:
        """Judge the next records; the events that begin in them."""
        if not len(observations):
            return []
        self._history.extend(observations)
        for name in observations.columns:
            at = observations.step[~np.isnan(observations.stated(name))]
            if len(at):
                before = self._measured.get(name, Measured(0, 0)).values
                self._measured[name] = Measured(before + len(at), int(at[-1]))
        self._intervals.extend(observations)
        self._note_fewer(observations)
        self._first_step = int(observations.step[0]) if self._first_step is None else self._first_step
        self._last_step = int(observations.step[-1])
        announced = observations.announced
        self._too_often |= self._announcements.extend(announced)
        self._announced += observations.step[announced][: MOST_ANNOUNCED + 1 - len(self._announced)].tolist()
        return list(self._seeker.extend(observations))

    def note(self, logged: Iterable[Mapping[str, Any]]) -> None:
        """Take in other lines of the log: remarks, and which settings have changed; records hold their number alone."""
        for line in logged:
            if line.get("event") == CALL_ORDER and str(line.get("wrong")) in REMARKS:
                self._remarks[str(line["wrong"])] = None
            self._history.note(line)
            self._begun |= line.get("event") == START and not is_converted(line.get("config"))
            self._ended |= line.get("event") in TERMINAL_EVENTS
            self._failure = line if line.get("event") == FAILURE else None
            if line.get("event") == SETTING_CHANGED:
                self._note_change(*(line.get(name) for name in ("step", "setting", "before", "now")))

    def _note_fewer(self, observations: Observations) -> None:
        """Take in by when fewer tensors are trained than before: a monitor records it once it has lasted."""
        trained = observations["trained_parameters"]
        for row in np.flatnonzero(~np.isnan(trained)).tolist():
            before, self._trained = self._trained, float(trained[row])
            if self._trained < before and len(self._fewer) <= MOST_ANNOUNCED:
                self._fewer.append(f"step {observations.step[row]:,} ({self._trained:g}, not {before:g})")

    def _note_change(self, step: Any, setting: Any, before: Any, now: Any) -> None:
        if type(step) is not int or not _are_fit(setting, before, now) or len(self._changes) == MOST_CHANGES:
            return
        change = Change(step, str(setting), setting_in_words(setting, before, now))
        if change in self._changes:  # a log that is read again says it again
            return
        self._changes[change] = None
        if self._settings_before.setdefault(change.setting, (step, before))[1] == now:
            del self._settings_before[change.setting]

    def diagnosis_of(self, log: LoggedPortions, source: str, notes: Sequence[str] = ()) -> Diagnosis:
        """What is known of the run of a whole log, all of which has been taken in; its own notes follow the others.

        Of the end of a log that is being written it would be said all the time that there is none.
        """
        caveats = log.caveats()
        of_its_end = [NO_END] if self._begun and not self._ended else []
        return self.diagnosis(
            log.name,
            source=source,
            format=log.format,
            left_out=caveats.left_out,
            damaged=caveats.damaged,
            notes=[*notes, *of_its_end, *caveats.notes],
        )

    def diagnosis(
        self,
        run: str,
        *,
        source: str = "",
        format: str = "memory",
        left_out: int = 0,
        damaged: int = 0,
        notes: Sequence[str] = (),
    ) -> Diagnosis:
        """What is known of the run by now.

        Parameters
        ----------
        left_out, damaged
            Lines of the log that were skipped, and others of which a part could not be used.
        """
        history, records, seeker = self._history.observations, self._seeker.records, self._with_last_evaluation()
        risen, times = rise_to_the_end(seeker.events, history)
        for event in seeker.events:
            self._say_what_changed(event, history)
            event.over = seeker.is_over(event)
            event.back = back_at(event, history)
            event.times = times if event is risen else 0.0
            event.lasts_to = self._last_step if seeker.stands(event) or lasts(event, history) else None
        found = findings_of(seeker.events, states_of(history), records, self._record_of(seeker.events))
        return Diagnosis(
            run=run,
            source=source,
            format=format,
            records=records,
            first_step=self._first_step,
            last_step=self._last_step,
            findings=gravest_first(*found, *self._told_of_failure(found)),
            not_judged=not_judged(history, self._measured, records),
            left_out=left_out,
            damaged=damaged,
            notes=(*notes, *map(REMARKS.__getitem__, self._remarks), *self._told_of_changes(), *_slower(history)),
        )

    def _with_last_evaluation(self) -> EventSeeker:
        """The seeker, which has judged the last evaluation too if that is not finite and no record has it."""
        latest = self._history.last_evaluation
        if latest is None or self._last_step is None or latest[0] < self._last_step or not math.isinf(latest[1]):
            return self._seeker
        seeker = copy.deepcopy(self._seeker)  # in the next record, should there be one, it is judged by itself
        seeker.update(Observation(latest[0], validation_loss=latest[1], evaluated=True))
        return seeker

    def _say_what_changed(self, event: Event, history: Observations) -> None:
        """Let an event know of the settings that changed in it, whatever else it is about."""
        if event.kind in OF_MACHINE:
            return
        event.changes = tuple(change for change in self._changes if event.step <= change.step <= event.until)
        settings = {change.setting: change.step for change in event.changes}
        if event.kind in OF_A_RATE and "learning_rate" not in (event.measurement, *settings):
            event.rate = _risen_rate(event, history)
        event.kept = tuple(name for name, last in settings.items() if self._is_kept(name, last, history))

    def _is_kept(self, setting: str, last: int, history: Observations) -> bool:
        """Whether a setting is not known to be what it was before it changed, up to the step ``last`` at the latest.

        Records have the learning rate.
        """
        since, before = self._settings_before.get(setting, (0, None))
        if setting == "learning_rate" and isinstance(before, int | float):
            rates = finite(history, setting).values
            return last >= since and (not len(rates) or float(rates[-1]) > before)
        return before is not None and last >= since

    def _told_of_failure(self, found: Iterable[Finding]) -> list[Finding]:
        """What the log says of its failure, unless it is that a loss is not finite, and that is found."""
        if self._failure is None:
            return []
        step, reason = step_of(self._failure), self._failure.get("reason")
        broken = any(finding.name in OF_NAN_LOSS and finding.severity == "error" for finding in found)
        if reason == NAN_LOSS and broken:
            return []
        last = step if step is not None else self._last_step or 0
        return [failed(last, reason if isinstance(reason, str) and _are_fit(reason) else "")]

    def _told_of_changes(self) -> list[str]:
        told = []
        if self._announced:
            told.append(f"a change was announced before {_in_words(self._announced)}: {LEARNED_ANEW}")
            if self._too_often:
                told[0] += f"; nothing but single numbers was judged between those less than {APART} records apart"
        for what, steps in self._intervals.steps.items():
            told += [f"{what.format(_in_words(steps))}: {LEARNED_ANEW}"] if steps else []
        if self._fewer:
            told.append(f"fewer tensors were trained by {_listed(self._fewer)}")
        return told

    def _record_of(self, events: Sequence[Event]) -> Callable[[int], float]:
        """Number of the record of a step: known at events and both ends, and between them in proportion."""
        known = {self._first_step or 0: 0, self._last_step or 0: self._seeker.records - 1}
        for event in events:
            known |= {event.step: event.record, event.until: event.last_record}
        steps = sorted(known)
        return lambda step: float(np.interp(step, steps, [known[one] for one in steps]))


def _in_words(steps: Sequence[int]) -> str:
    return f"step{'s' if len(steps) > 1 else ''} {_listed([f'{step:,}' for step in steps])}"


def _listed(told: Sequence[str]) -> str:
    """Text of the first of several items, with a hint if there are more."""
    return ", ".join(told[:MOST_ANNOUNCED]) + (" and later ones" if len(told) > MOST_ANNOUNCED else "")


def _slower(history: Observations) -> list[str]:
    """What is said of steps that take much longer at the end of a run than at its beginning; else nothing."""
    times = finite(history, "step_time_s")
    if len(times) < LEAST_TIMES:
        return []
    first, *_, last = times.blocks(TENTHS).values
    if not 0.0 < SLOWER * first <= last:
        return []
    return [
        f"a step takes {last / first:.2g} times as long in the last tenth of the run ({last:.3g} s) as in the first "
        f"({first:.3g} s)"
    ]


def _risen_rate(event: Event, history: Observations) -> str:
    """What the records say of a learning rate that has risen from before an event to its last alert; else nothing."""
    rates = finite(history, "learning_rate")
    begin, end = np.searchsorted(rates.steps, (event.step, event.until), side="right")
    recent = rates.values[max(begin - REARM_STEPS, 0) : end]
    if not len(recent) or not 0.0 < RATE_RISE_FACTOR * recent[0] <= recent.max():
        return ""
    return f"the learning rate rose from {recent[0]:.3g} to {recent.max():.3g}"


def _are_fit(*values: Any) -> bool:
    """Whether values of a log are numbers, or short texts without control characters."""
    return all(
        isinstance(value, int | float) or (isinstance(value, str) and value.isprintable() and len(value) <= LONGEST)
        for value in values
    )
