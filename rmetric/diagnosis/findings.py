"""Findings made of events and states: each cause once, the gravest first.

Events of one kind are one finding. A state takes in the events that are its beginning and its course.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rmetric.advice import ADVICE, Advice, advice_on_settings
from rmetric.diagnosis.events import GRAVE, Event
from rmetric.diagnosis.finding import SEVERITIES, Finding, Severity
from rmetric.diagnosis.sentences import sentence_of, what
from rmetric.episodes import REARM_STEPS
from rmetric.robust.surprise import EVERYDAY_PER_STEP
from rmetric.states import State

CHANGES = frozenset({"LOSS_RISE", "GRADIENT_RISE", "UPDATE_RISE", "GRADIENT_REPEATS", "SETTING_CHANGED"})
EXPLAINS: dict[str, frozenset[str]] = {
    "DEAD": CHANGES | {*GRAVE},
    "WORSE_LEVEL": CHANGES | {*GRAVE},
    "GRADIENT_GROWS": frozenset({"GRADIENT_RISE"}),
    "WORSE_VALIDATION": CHANGES,
    "NEVER_LEARNS": CHANGES,
}
"""State → events that are part of it."""
BROKEN: frozenset[str] = frozenset({*GRAVE, "DEAD", "NEVER_LEARNS"} - {"ZERO_GRADIENT"})
"""Kinds that are an error while they last. A gradient of 0 now and then is healthy in some trainings; one that lasts is
the state DEAD."""

OFTEN_MEANT = frozenset({"SETTING_CHANGED"})
"""Kinds that healthy runs show as well, where somebody wants them: no rate of them is known."""


def findings_of(
    events: Sequence[Event], states: Sequence[State], records: int, steps_a_record: float
) -> tuple[Finding, ...]:
    """Findings of a run of so many records, each of which stands for so many steps."""
    owner = {id(event): _owner(event, states, REARM_STEPS * steps_a_record) for event in events}
    found = [_of_state(state, [event for event in events if owner[id(event)] is state]) for state in states]
    free = [event for event in events if owner[id(event)] is None]
    kinds = dict.fromkeys(event.kind for event in free)
    found += [_of_events([event for event in free if event.kind == kind], records) for kind in kinds]
    return tuple(sorted(found, key=lambda finding: (-SEVERITIES.index(finding.severity), finding.step)))


def _owner(event: Event, states: Sequence[State], quiet_steps: float) -> State | None:
    """The state that an event belongs to: it explains such events, and began before this one was over."""
    for state in states:
        if event.kind in EXPLAINS.get(state.name, ()) and event.last_step + quiet_steps >= state.since:
            return state
    return None


def _of_state(state: State, events: Sequence[Event]) -> Finding:
    """A state with the events that belong to it; what it began with says most about its causes."""
    origin = events[0] if events and events[0].step <= state.since else None
    causes = [*ADVICE[state.name].causes]
    if origin is not None:
        causes = list(dict.fromkeys([*_advice([origin]).causes[:2], *causes]))
    own: Severity = "error" if state.name in BROKEN else "warning"
    severities = [own, *(_severity(event) for event in events)]
    return Finding(
        name=state.name,
        severity=max(severities, key=SEVERITIES.index),
        step=state.since if origin is None else origin.step,
        until=state.until,
        sentence=state.sentence + (f"; it began like this: {what(origin)}" if origin is not None else ""),
        numbers={**state.numbers, "since": float(state.since), "false_alarm_rate": state.false_alarm_rate},
        sure=state.sure,
        causes=tuple(causes),
        advice=ADVICE[state.name].action,
    )


def _of_events(events: Sequence[Event], records: int) -> Finding:
    first, last = events[0], events[-1]
    advice = _advice(events)
    surprise = max((event.surprise for event in events if not math.isnan(event.surprise)), default=math.nan)
    return Finding(
        name=first.kind,
        severity=max((_severity(event) for event in events), key=SEVERITIES.index),
        step=first.step,
        until=last.last_step,
        sentence=sentence_of(events),
        numbers={
            "value": first.value, "before": first.before, "events": float(len(events)),
            "alerts": float(sum(event.alerts for event in events)), "surprise": surprise,
        },
        sure=math.nan if first.kind in OFTEN_MEANT else _sure(surprise, records),
        causes=advice.causes,
        advice=advice.action,
    )  # fmt: skip


def _advice(events: Sequence[Event]) -> Advice:
    """Advice on events of one kind; on the settings that changed, where that is the kind."""
    if events[0].kind != "SETTING_CHANGED":
        return ADVICE[events[0].kind]
    return advice_on_settings([setting for event in events for setting in event.settings])


def _severity(event: Event) -> Severity:
    over = event.over and event.lasts_to is None
    if event.kind in BROKEN or event.exploded:
        return "warning" if over else "error"
    return "note" if over else "warning"


def _sure(surprise: float, records: int) -> float:
    """Chance that a healthy run of so many records shows nothing like it, by the rate in healthy records."""
    return math.exp(-records * EVERYDAY_PER_STEP * 10.0**-surprise)
