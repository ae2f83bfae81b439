"""What a log does not let one judge, and why."""

from __future__ import annotations

from collections.abc import Container

from rmetric.records import Observations
from rmetric.robust.reference import WARM_UP
from rmetric.states import RECOGNISERS, evidence_of
from rmetric.states.dead import LEAST_RECORDS as DEAD_RECORDS
from rmetric.states.gradient_grows import LEAST_RECORDS as GRADIENT_RECORDS
from rmetric.states.held_out import LEAST_EVALUATIONS
from rmetric.states.never_learns import LEAST_RECORDS as LEARNING_RECORDS
from rmetric.states.series import finite, since_planned
from rmetric.states.worse_level import LEAST_RECORDS as LEVEL_RECORDS
from rmetric.states.worse_validation import LEAST_EVALUATIONS as STEP_EVALUATIONS

EVENTS_OF = {
    "loss": (("training_loss",), "training loss"),
    "gradients": (("grad_norm",), "gradient norm"),
    "updates": (("update_rms",), "size of the updates"),
    "hardware": (("hardware_events", "lambda", "step_time_s"), "hardware events or step times"),
}
"""What events are about → measurements, any one of which is enough, and their name."""
ESSENTIAL = frozenset({"loss", "gradients", "updates"})
"""Of these a log needs one: hardware alone says nothing of how the training goes."""
OUTLIERS = "outliers"
OF_AN_AGENT = "loss and gradients that change by degrees"
SAID_OF_AN_AGENT = (
    "an agent's rewards say how it does; they are evidence only where these fall, and a fall of these alone is not "
    "looked for"
)
NEEDS = {
    "NEVER_LEARNS": f"{LEARNING_RECORDS} records of a training loss that is above 0 throughout, no mere noise, not "
    "from late in a run",
    "DEAD": f"{DEAD_RECORDS} records of a training loss or a gradient norm",
    "OVERFITS": f"{LEAST_EVALUATIONS} validation losses beside the training loss",
    "GRADIENT_GROWS": f"{GRADIENT_RECORDS} records of a gradient norm",
    "WORSE_LEVEL": f"{LEVEL_RECORDS} records of a training loss that is above 0 throughout",
    "WORSE_VALIDATION": f"{STEP_EVALUATIONS} validation losses beside the training loss",
}
"""State → what it takes to tell."""
OF_POSITIVE_LOSSES = ("NEVER_LEARNS", "WORSE_LEVEL")
"""States of which nothing is known where a training loss is 0 or below."""
ANEW = frozenset({"OVERFITS", "WORSE_LEVEL", "WORSE_VALIDATION"})
"""States that are looked for anew where a change was announced."""


def not_judged(history: Observations, measured: Container[str], records: int) -> dict[str, str]:
    """Name of what could not be judged → why.

    Parameters
    ----------
    history
        Records, however shortened.
    measured
        Names of all that was measured.
    records
        Number of records before they were shortened.
    """
    if not records:
        return {"everything": "there is no record"}
    missing = {
        about: f"the log has no {name}"
        for about, (names, name) in EVENTS_OF.items()
        if not any(name in measured for name in names)
    }
    if records <= WARM_UP:
        missing[OUTLIERS] = f"the first {WARM_UP} records tell what is usual in the run; it has {records:,}"
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


def _lowest_loss(history: Observations) -> str:
    """Where the training loss is not above 0; nothing where it is, throughout."""
    loss = finite(history, "training_loss")
    if not len(loss) or loss.values.min() > 0.0:
        return ""
    lowest = int(loss.values.argmin())
    return f"; it is {loss.values[lowest]:.4g} at step {loss.steps[lowest]:,}"
