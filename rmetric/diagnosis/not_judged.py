"""What a log does not let one judge, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rmetric.records import Observations
from rmetric.robust.hardware import SLOWDOWN_RECORDS
from rmetric.robust.loss import FIRST_CHANGES
from rmetric.robust.reference import WARM_UP
from rmetric.states import RECOGNISERS, evidence_of
from rmetric.states.dead import LEAST_RECORDS as DEAD_RECORDS
from rmetric.states.gradient_grows import LEAST_RECORDS as GRADIENT_RECORDS
from rmetric.states.held_out import LEAST_EVALUATIONS
from rmetric.states.never_learns import LEAST_FALL
from rmetric.states.never_learns import LEAST_RECORDS as LEARNING_RECORDS
from rmetric.states.series import finite, since_planned
from rmetric.states.unbounded import LEAST_RECORDS as UNBOUNDED_RECORDS
from rmetric.states.worse_level import LEAST_RECORDS as LEVEL_RECORDS
from rmetric.states.worse_validation import LEAST_EVALUATIONS as STEP_EVALUATIONS

EVENTS_OF = {
    "loss": (("training_loss",), "training loss"),
    "gradients": (("grad_norm",), "gradient norm"),
    "updates": (("update_rms",), "size of the updates"),
    "hardware": (("hardware_events", "lambda", "step_time_s"), "hardware events or step times"),
}
"""What events are about → measurements, any one of which is enough, and their name."""
LEAST = {
    "training_loss": FIRST_CHANGES + 2,
    "grad_norm": WARM_UP + 1,
    "update_rms": WARM_UP + 1,
    "step_time_s": WARM_UP + SLOWDOWN_RECORDS,
}
"""Values with which judging a measurement begins (docs/robust_reference.md, *from record*); one, if it is not here."""
NAMES = {
    "training_loss": "training loss",
    "grad_norm": "gradient norm",
    "update_rms": "size of the updates",
    "step_time_s": "step time",
}
"""Measurements of :data:`LEAST` → their names."""
ENDED = 20
"""Usual distances between its values, after which a measurement has ended before the log."""
ESSENTIAL = frozenset({"loss", "gradients", "updates"})
"""Of these a log needs one: hardware alone says nothing of how the training goes."""
OUTLIERS = "outliers"
OF_AN_AGENT = "the loss, and gradients that change by degrees"
SAID_OF_AN_AGENT = (
    "an agent's rewards say how it does; they are evidence only where these fall, and a fall of these alone is not "
    "looked for"
)
NEEDS = {
    "NEVER_LEARNS": f"{LEARNING_RECORDS} records of a training loss that is above 0 throughout, no mere noise, not "
    f"from late in a run, of which a fall by {100 * LEAST_FALL:.0f} % would show",
    "DEAD": f"{DEAD_RECORDS} records of a training loss or a gradient norm",
    "UNBOUNDED": f"{UNBOUNDED_RECORDS} records of a training loss",
    "OVERFITS": f"{LEAST_EVALUATIONS} validation losses beside the training loss",
    "GRADIENT_GROWS": f"{GRADIENT_RECORDS} records of a gradient norm",
    "WORSE_LEVEL": f"{LEVEL_RECORDS} records of a training loss that is never below 0, nor 0 at first",
    "WORSE_VALIDATION": f"{STEP_EVALUATIONS} validation losses beside the training loss",
}
"""State → what it takes to tell."""
OF_POSITIVE_LOSSES = ("NEVER_LEARNS", "WORSE_LEVEL")
"""States of which nothing may be known where a training loss is 0 or below."""
ANEW = frozenset({"UNBOUNDED", "OVERFITS", "WORSE_LEVEL", "WORSE_VALIDATION"})
"""States that are looked for anew where a change was announced."""


class Measured(NamedTuple):
    """What is known of a measurement."""

    values: int
    """How many records have one."""
    last_step: int
    """Step of the last."""


def not_judged(history: Observations, measured: Mapping[str, Measured], records: int) -> dict[str, str]:
    """Name of what could not be judged → why. ``records`` is the number of records before ``history`` was shortened."""
    if not records:
        return {"everything": "there is no record"}
    missing = {
        about: f"the log has no {name}"
        for about, (names, name) in EVENTS_OF.items()
        if not any(name in measured for name in names)
    }
    if records <= WARM_UP:
        missing[OUTLIERS] = f"the first {WARM_UP} records tell what is usual in the run; it has {records:,}"
    else:
        missing |= {about: of for about, (names, _) in EVENTS_OF.items() if (of := _too_few(names, measured))}
    missing |= _ended(history, measured)
    if "reward" in measured:
        missing[OF_AN_AGENT] = SAID_OF_AN_AGENT
    known = evidence_of(history)
    since = " since the last change that was announced" if history.has("planned_changes") else ""
    least = {name: _lowest_loss(since_planned(history) if name in ANEW else history) for name in OF_POSITIVE_LOSSES}
    return missing | {
        name: f"needs {NEEDS[name]}{since if name in ANEW else ''}{least.get(name, '')}"
        for name in RECOGNISERS
        if name not in known
    }


def _too_few(names: Sequence[str], measured: Mapping[str, Measured]) -> str:
    """Note that there are too few values to judge; empty if one measurement has enough, or none has any."""
    known = {of: measured[of].values for of in names if of in measured}
    if not known or any(values >= LEAST.get(of, 1) for of, values in known.items()):
        return ""
    most = max(known, key=known.__getitem__)
    return f"{LEAST[most]} values tell what is usual; the log has {known[most]} of the {NAMES[most]}"


def _ended(history: Observations, measured: Mapping[str, Measured]) -> dict[str, str]:
    """What was measured no more long before the end of the log."""
    first, last, told = int(history.step[0]), int(history.step[-1]), {}
    for about, (names, _) in EVENTS_OF.items():
        for of in (of for of in names if of in LEAST and of in measured):
            values, end = measured[of]
            if (last - end) * values > ENDED * (end - first):
                told[f"{about} after step {end:,}"] = f"the log goes on to step {last:,}, without a {NAMES[of]}"
    return told


def _lowest_loss(history: Observations) -> str:
    """Lowest training loss and its step, where it is not above 0; nothing where it is, throughout."""
    loss = finite(history, "training_loss")
    if not len(loss) or loss.values.min() > 0.0:
        return ""
    lowest = int(loss.values.argmin())
    return f"; it is {loss.values[lowest]:.4g} at step {loss.steps[lowest]:,}"
