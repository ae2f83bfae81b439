"""Findings made of events and states: each cause once, the gravest first.

Events of one kind are one finding, their evidence put into words here. A state takes in the event that is its
beginning, and those of its course that say no more than it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from rmetric.advice import ADVICE, Advice, action_in_state, advice_on_failure, advice_on_settings, possible
from rmetric.diagnosis.events import GRAVE, PER_RATE, Event
from rmetric.diagnosis.finding import FAILED, SEVERITIES, Finding, Severity
from rmetric.episodes import REARM_STEPS
from rmetric.robust.hardware import SLOWDOWN_RECORDS
from rmetric.robust.loss import LOST_RECORDS
from rmetric.robust.surprise import EVERYDAY_PER_STEP
from rmetric.states import State

CHANGES = frozenset({"LOSS_RISE", "GRADIENT_RISE", "UPDATE_RISE", "GRADIENT_REPEATS", "SETTING_CHANGED"})
EXPLAINS: dict[str, frozenset[str]] = {
    "DEAD": CHANGES | {*GRAVE},
    "UNBOUNDED": CHANGES,
    "WORSE_LEVEL": CHANGES | {*GRAVE},
    "GRADIENT_GROWS": frozenset({"GRADIENT_RISE"}),
    "WORSE_VALIDATION": CHANGES,
    "NEVER_LEARNS": CHANGES,
}
"""State → events that are part of it."""
BROKEN: frozenset[str] = frozenset({*GRAVE, "DEAD", "UNBOUNDED", "NEVER_LEARNS"} - {"ZERO_GRADIENT"})
"""Kinds that are an error while they last. A gradient of 0 now and then is healthy in some trainings; one that lasts is
the state DEAD."""
OF_THE_START = frozenset({"NEVER_LEARNS"})
"""States that say nothing of when something happened later on."""
UPWARD = frozenset({"LOSS_RISE", "GRADIENT_RISE", "UPDATE_RISE", "SLOW_STEPS"})
"""Kinds whose measurement is too high."""
OFTEN_MEANT = frozenset({"SETTING_CHANGED"})
"""Kinds that healthy runs show as well, where somebody wants them: no rate of them is known."""
MOST_CAUSES = 3
"""Likely causes of the event that a state began with that are told before the state's own."""
MOST_TOLD = 5
"""Changes of settings that are told of one event."""
NAMES = {
    "training_loss": "loss", "validation_loss": "validation loss", "delta_l": "ΔL", "uniform_gap": "loss",
    "grad_norm": "gradient norm", "sigma_sq": "variance of the gradients", "non_finite_count": "gradient",
    "grad_agreement": "agreement of the gradient with the steps before",
    "settings_changed": "settings that changed",
    "learning_rate": "learning rate",
    "update_rms": "update RMS", PER_RATE: "update RMS / learning rate",
    "hardware_events": "hardware events", "event_worker": "hardware events",
    "lambda": "hardware events an hour", "step_time_s": "step time (s)", "step_time_max_s": "longest step (s)",
}  # fmt: skip
"""Measurement → its name in a sentence."""


def findings_of(
    events: Sequence[Event], states: Sequence[State], records: int, record_of: Callable[[int], float]
) -> tuple[Finding, ...]:
    """Findings of a run of so many records; ``record_of`` gives the number of the record of a step."""
    free, origins, found = list(events), set[int](), []
    for state in sorted(states, key=lambda state: state.since):  # an event is of the course of the first
        origin, course = _parts(state, free, record_of(state.since))
        found.append(_of_state(state, origin, course, action_in_state(state, states)))
        origins.add(id(origin))  # of several states, if they began with the same
        taken = {*map(id, course)}
        free = [event for event in free if id(event) not in taken]
    free = [event for event in free if id(event) not in origins]
    kinds = dict.fromkeys(event.kind for event in free)
    found += [_of_events([event for event in free if event.kind == kind], records) for kind in kinds]
    return gravest_first(*found)


def gravest_first(*findings: Finding) -> tuple[Finding, ...]:
    """Findings in the order in which they are told: by severity, then by step."""
    return tuple(sorted(findings, key=lambda finding: (-SEVERITIES.index(finding.severity), finding.step)))


def failed(step: int, reason: str) -> Finding:
    """What the log itself says of the run's end: no detection, and left out where detections are scored."""
    advice = advice_on_failure(reason)
    return Finding(
        name=FAILED,
        severity="error",
        step=step,
        until=step,
        sentence="the log says that the run failed" + (f": {reason}" if reason else ""),
        numbers={},
        sure=1.0,
        causes=advice.causes,
        advice=advice.action,
    )


def _parts(state: State, events: Sequence[Event], since: float) -> tuple[Event | None, list[Event]]:
    """The event that a state began with, in the record ``since``, and those of its course.

    The latest to begin by then says most about its causes, unless it had passed: 50 records before, or, of a loss that
    climbs, which detectors get used to, unless it had come back. So many records later an event may still be that: the
    third high loss raises an alert. What begins later belongs to a state unless it is news, or the state is that of a
    run from its start, of which all else would be the course. What lets a loss move explains more than that it has not
    fallen.
    """
    kinds = () if state.moved else EXPLAINS.get(state.name, ())
    of_it = [event for event in events if event.kind in kinds]
    before = [event for event in of_it if event.record <= since + LOST_RECORDS]
    lasted = [
        event
        for event in before
        if event.lasts_to is not None or event.last_record + REARM_STEPS >= since or _climbs_into(state, event)
    ]
    later = [] if state.name in OF_THE_START else of_it[len(before) :]
    return next(reversed(lasted), None), [event for event in later if not _is_news(event)]


def _climbs_into(state: State, event: Event) -> bool:
    """Whether a state is that of the loss which rose in an event, and which had not come back when it began."""
    rose = state.name == "WORSE_LEVEL" and (event.kind, event.measurement) == ("LOSS_RISE", "training_loss")
    return rose and (event.back is None or event.back > state.since)


def _is_news(event: Event) -> bool:
    """Whether an event says something that a state which had begun before it does not say."""
    return event.kind in GRAVE or event.lasts_to is not None


def _of_state(state: State, origin: Event | None, course: Sequence[Event], action: str) -> Finding:
    """A state with the event that it began with, and those of its course."""
    causes = [*ADVICE[state.name].causes]
    if origin is not None:
        causes = list(dict.fromkeys([*_advice([origin]).causes[:MOST_CAUSES], *causes]))
    own: Severity = "error" if state.name in BROKEN else "warning"
    severities = [own, *(_severity(event) for event in (origin, *course) if event is not None)]
    return Finding(
        name=state.name,
        severity=max(severities, key=SEVERITIES.index),
        step=state.since if origin is None else min(state.since, origin.step),
        until=state.until,
        sentence=state.sentence + (f"; it began like this: {_what(origin)}" if origin is not None else ""),
        numbers={**state.numbers, "since": float(state.since), "false_alarm_rate": state.false_alarm_rate},
        sure=state.sure,
        causes=tuple(causes),
        advice=action,
    )


def _first(events: Sequence[Event]) -> Event:
    """The first of several that lasts; the first of all, if none does."""
    return next((event for event in events if event.lasts_to is not None), events[0])


def _of_events(events: Sequence[Event], records: int) -> Finding:
    first = _first(events)
    advice = _advice(events)
    surprise = max((event.surprise for event in events if not math.isnan(event.surprise)), default=math.nan)
    return Finding(
        name=first.kind,
        severity=max((_severity(event) for event in events), key=SEVERITIES.index),
        step=first.step,
        until=max(event.last_step for event in events),
        sentence=_sentence(events),
        numbers={
            "value": first.value, "highest": max(event.highest for event in events), "before": first.before,
            "events": float(len(events)),
            "alerts": float(sum(event.alerts for event in events)), "surprise": surprise,
        },
        sure=math.nan if first.kind in OFTEN_MEANT else _sure(surprise, records),
        causes=advice.causes,
        advice=advice.action,
    )  # fmt: skip


def _advice(events: Sequence[Event]) -> Advice:
    """Advice on events of one kind, with the causes that are possible for at least one event.

    On the settings that changed, where that is the kind.
    """
    if events[0].kind == "SETTING_CHANGED":
        return advice_on_settings([change.setting for event in events for change in event.changes])
    advice = ADVICE[events[0].kind]
    causes = {cause for event in events for cause in possible(advice.causes, event.rate_now, event.rate_before)}
    return replace(advice, causes=tuple(cause for cause in advice.causes if cause in causes))


def _severity(event: Event) -> Severity:
    over = event.over and event.lasts_to is None
    if over and event.kind == "NOT_FINITE" and event.measurement == "grad_norm" and event.alerts == 1:
        return "note"  # in half precision such a step is left out, and the loss scaled anew
    if event.kind in BROKEN or event.exploded:
        return "warning" if over else "error"
    return "note" if over else "warning"


def _sure(surprise: float, records: int) -> float:
    """Chance that a healthy run of so many records shows nothing like it, by the rate in healthy records."""
    return math.exp(-records * EVERYDAY_PER_STEP * 10.0**-surprise)


def _sentence(events: Sequence[Event]) -> str:
    """Evidence of one or more events of one kind: of the first of each subject, and how often it came."""
    subjects = dict.fromkeys(event.subject for event in events)
    return "; ".join(_of_subject([event for event in events if event.subject == subject]) for subject in subjects)


def _of_subject(events: Sequence[Event]) -> str:
    """The first of several, the first that lasts, those with a setting that is kept, and how many they are."""
    told = (event for event in events if event is events[0] or event is _first(events) or event.kept)
    again = f"; {len(events)} times in all, last at step {events[-1].step:,}" if len(events) > 1 else ""
    return "; ".join(map(_what, told)) + again


def _what(event: Event) -> str:
    """What stood out in an event, in numbers."""
    is_setting = event.kind == "SETTING_CHANGED"
    changed = _changed(event)
    told = _stood_out(event) + (f"{':' if is_setting else '; meanwhile'} {changed}" if changed else "")
    if event.times:
        has = "has exploded, and" if event.exploded else "stays high: it"
        told += f"; the loss {has} ends {event.times:.3g} times as high as it ever was before"
    if not event.kept:
        return told + (", and it is so at the end" if event.lasts_to is not None else "")
    were = "it was" if len(event.changes) == 1 else " and ".join(event.kept) + (" were" if event.kept[1:] else " was")
    return f"{told}, and the log does not say that {were} taken back"


def _changed(event: Event) -> str:
    """The settings that changed in an event, with their steps where these are others than the event's own."""
    told = [change.told + (f" at step {change.step:,}" if change.step != event.at else "") for change in event.changes]
    more = [f"{len(told) - MOST_TOLD} more"] if len(told) > MOST_TOLD else []
    return ", ".join(filter(None, (*told[:MOST_TOLD], *more, event.rate)))


def _stood_out(event: Event) -> str:
    at = f"{_shows(event)} at step {event.at:,}"
    if event.kind == "SETTING_CHANGED":
        return at
    first = event.first
    began = f" after an alert at step {first.step:,} ({_shows(first)})" if first is not None else ""
    by = f", most by worker {event.worker}" if event.worker is not None else ""
    lasting = f", alerts in {event.alike:,} records" if event.alike > 1 else ""
    return f"{at}{began}{_up_to(event)}{_before(event)}{by}{lasting}"


def _shows(event: Event) -> str:
    """What an event is about, and its measurement where it began."""
    name = NAMES[event.measurement]
    if event.kind == "NOT_FINITE":
        return f"the {name} is not finite"
    if event.kind == "UNIFORM_ANSWER":
        return "every token is answered alike (the loss is ln(vocabulary))"
    if event.kind in ("ZERO_GRADIENT", "ZERO_UPDATE"):
        return f"the {name} is exactly 0"
    if event.kind == "SETTING_CHANGED":
        return ("a setting" if event.value == 1.0 else f"{event.value:.0f} settings") + " changed abruptly"
    of = f" (median of {SLOWDOWN_RECORDS} records)" if event.kind == "SLOW_STEPS" else ""
    return f"{name} {_number(event.value)}{of}"


def _up_to(event: Event) -> str:
    """How far what rises goes on to rise."""
    first, highest = _number(event.value), _number(event.highest)
    return f", up to {highest}" if event.kind in UPWARD and event.highest > event.value and highest != first else ""


def _before(event: Event) -> str:
    if math.isnan(event.before) or event.kind == "UNIFORM_ANSWER":
        return ""
    return f"; {_number(event.before)} before ({event.before_is} of {event.known_before} records)"


def _number(value: float) -> str:
    """Four significant digits; ``not measured`` for NaN.

    >>> _number(0.123456), _number(float("nan"))
    ('0.1235', 'not measured')
    """
    return "not measured" if math.isnan(value) else f"{value:.4g}"
