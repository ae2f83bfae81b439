"""The rungs: the author's conditions, given up one after the other and each alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rmetric.evaluation.protocols import Protocol
from rmetric.evaluation.scores import Score
from studies.paper.plan import AS_PUBLISHED, PublishedPlan, StudyPlan

ALONE = "only "
"""Prefix of the key of a rung that gives up one condition alone."""
RECORDS_EVERY = 10
"""Steps between records of this project's study."""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One of the author's conditions that is given up."""

    title: str
    """What stands in its place, as the table has it."""
    takes_away: str
    """What that does to the score, in a sentence."""
    plan: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the plan that change."""
    conditions: tuple[str, ...] = ()
    """Fields of :class:`rmetric.simulation.Conditions` that no longer hold."""
    protocol: Protocol = "paper"


CONDITIONS = (
    Condition(
        title="healthy spikes and changes of the data",
        takes_away="A change of the data that lifts the validation loss by 1 % is enough where the other values are "
        "few, or where σ² and λ stand at their highest.",
        conditions=("no_disturbances",),
    ),
    Condition(
        title="evaluations on samples of text (0.7 % noise)",
        takes_away="Among the first few values, any rise of the validation loss is the largest ever seen: "
        "healthy runs alarm.",
        conditions=("exact_evaluation",),
    ),
    Condition(
        title="a loss that falls as a power law",
        takes_away="The fall slows down, so that ΔL only rises: every run alarms, and F1 is that of an "
        "alarm that never stops.",
        conditions=("steady_loss",),
    ),
    Condition(
        title="the fault at any step, not at an evaluation",
        takes_away="Nothing from such an alarm; alone, all but a tenth of the warnings: the run is gone "
        "before the next record.",
        plan={"onset": None},
    ),
    Condition(
        title="a record every 10 steps, not every 100",
        takes_away="Nothing: the validation loss still comes every 100 steps, and the other two signals "
        "cannot alarm alone.",
        plan={"log_every": RECORDS_EVERY},
    ),
    Condition(
        title="faults that act as in real training, without a crash in 20 steps",
        takes_away="Fewer runs fail, so an alarm that never stops is right less often; alone, no fault is seen at all.",
        conditions=("crash",),
    ),
    Condition(
        title="only alerts from onset to failure count",
        takes_away="The alarm was on long before the fault, and warns nobody of it.",
        protocol="strict",
    ),
)
"""In the order in which the ladder gives them up."""


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One set of conditions."""

    key: str
    title: str
    takes_away: str
    plan: StudyPlan
    protocol: Protocol
    alone: bool = False
    """True if one condition is given up and all others hold."""


@dataclass(frozen=True)
class Result:
    """Scores of one rung of the ladder."""

    key: str
    title: str
    takes_away: str
    summary: Mapping[str, Score]
    runs: int
    """Runs that were scored."""
    alone: Score | None = None
    """F1 where this is the only condition that is given up; ``None`` where there is no such thing."""


def rungs(**plan: Any) -> Iterator[Rung]:
    """All rungs in simulation: the author's conditions, each given up after those before it, and each alone."""
    start = PublishedPlan(**plan)
    title = "all of the author's conditions"
    yield Rung(key="0", title=title, takes_away="", plan=start, protocol="paper")
    for number in range(1, len(CONDITIONS) + 1):
        yield _without(CONDITIONS[:number], start, str(number))
    for number, condition in enumerate(CONDITIONS, start=1):
        if number > 1:  # the first one has been given up alone
            yield replace(_without((condition,), start, f"{ALONE}{number}"), alone=True)


def _without(given_up: tuple[Condition, ...], start: PublishedPlan, key: str) -> Rung:
    """Rung without some conditions; named after the last of them."""
    last, fields = given_up[-1], {name for condition in given_up for name in condition.conditions}
    changes = {name: value for condition in given_up for name, value in condition.plan.items()}
    conditions = replace(AS_PUBLISHED, **dict.fromkeys(fields, False))
    return Rung(
        key=key,
        title=last.title,
        takes_away=last.takes_away,
        plan=replace(start, conditions=conditions, **changes),
        protocol="strict" if any(condition.protocol == "strict" for condition in given_up) else "paper",
    )
