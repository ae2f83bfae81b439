"""States of a run, beside the events that detectors find: what a finished or running log is in, and since when.

    for state in rmetric.states_of(run):
        print(state)

Each state is recognised by a statistic of the run so far, in a file of its own. How sure a state is follows from the
same statistic in healthy runs, each looked at again and again while it went on (``states.json``); a state is reported
where at most one healthy run in a hundred shows as much.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from rmetric.records import (
    Observations,
    Run,
    reported_classes,
    reported_evaluations,
    with_evaluations,
    with_uniform_gap,
)
from rmetric.states.base import SHIPPED, Calibration, Evidence, Recogniser, State, calibrations
from rmetric.states.dead import dead
from rmetric.states.gradient_grows import gradient_grows
from rmetric.states.history import History
from rmetric.states.never_learns import LEAST_FALL, never_learns
from rmetric.states.overfits import overfits
from rmetric.states.unbounded import unbounded
from rmetric.states.worse_level import worse_level
from rmetric.states.worse_validation import worse_validation

RECOGNISERS: dict[str, Recogniser] = {
    "NEVER_LEARNS": never_learns,
    "DEAD": dead,
    "UNBOUNDED": unbounded,
    "OVERFITS": overfits,
    "GRADIENT_GROWS": gradient_grows,
    "WORSE_LEVEL": worse_level,
    "WORSE_VALIDATION": worse_validation,
}
"""State → what recognises it."""
FOLLOWS: dict[str, frozenset[str]] = {
    "DEAD": frozenset({"WORSE_LEVEL", "GRADIENT_GROWS", "WORSE_VALIDATION"}),
    "UNBOUNDED": frozenset({"OVERFITS", "GRADIENT_GROWS", "WORSE_VALIDATION"}),
    "NEVER_LEARNS": frozenset({"WORSE_LEVEL", "WORSE_VALIDATION"}),
    "OVERFITS": frozenset({"WORSE_VALIDATION"}),
    "WORSE_LEVEL": frozenset({"WORSE_VALIDATION"}),
}
"""State → states that follow from it, or contradict it, and are told beside it only if the run was in them before."""
BUDGET = 0.01
"""Largest share of healthy runs in which a state may be reported."""
WELL_INSIDE, WELL_BEGUN = 0.25, 100
"""Share of a run, or records if these are fewer, after which a loss that leaves its level has broken off, and not
failed from the beginning on."""
FIRST_LOOK = 512
"""Records of a run that goes on when a monitor first looks at its states; the next time there are twice as many.
Learning may begin late."""
URGENT: frozenset[str] = frozenset({"UNBOUNDED"})
"""States that no run comes back from, recognised in 0.2 ms: a monitor looks for them early and often."""


def states_of(run: Run | Observations, *, budget: float = BUDGET, names: Collection[str] = RECOGNISERS) -> list[State]:
    """States in which a run is at its latest record; empty for a healthy one.

    Parameters
    ----------
    run
        A finished run, or the records so far of a run in progress. Cost: about 5 ms for 1,000 records.
    budget
        Report states that at most this share of healthy runs shows.
    names
        States to look for.
    """
    observations = _told_by(run) if isinstance(run, Run) else run
    found = _recognised(observations, budget, names)
    worse = next((state for state in found if state.name == "WORSE_LEVEL"), None)
    if worse is not None:  # what a run has lost it had
        broke = _broke_off(worse, observations)
        found = [state for state in found if not (state.moved or (broke and state.name == "NEVER_LEARNS"))]

    def is_told_by(other: State, state: State) -> bool:
        return state.name in FOLLOWS.get(other.name, ()) and not _was_before(state, other, observations, budget)

    return [state for state in found if not any(is_told_by(other, state) for other in found)]


def earlier(state: State, states: Sequence[State]) -> list[State]:
    """Those of a run's states that would follow from one, but which the run was in before that began."""
    return [one for one in states if one.name in FOLLOWS.get(state.name, ())]


def _recognised(observations: Observations, budget: float, names: Collection[str]) -> list[State]:
    """States that speak for themselves, whatever else is found."""
    judged = {name: (evidence, calibrations()[name]) for name, evidence in evidence_of(observations, names).items()}
    states = [
        State(
            name=name,
            since=evidence.since,
            until=int(observations.step[-1]),
            false_alarm_rate=calibration.false_alarm_rate(evidence.score),
            numbers=evidence.numbers,
            sentence=evidence.sentence,
        )
        for name, (evidence, calibration) in judged.items()
    ]
    return [state for state in states if state.false_alarm_rate <= budget]


def _was_before(state: State, other: State, observations: Observations, budget: float) -> bool:
    """Whether a run was in a state already when another one began.

    The steps alone do not tell: where a loss left its level is known to a few records, GRADIENT_GROWS begins in the
    last half of the run, whatever came before, and UNBOUNDED by definition late.
    """
    if state.since >= other.since:
        return False
    before = observations.rows(slice(0, int(np.searchsorted(observations.step, other.since))))
    return len(_recognised(before, budget, [state.name])) > 0


def _broke_off(worse: State, observations: Observations) -> bool:
    """Whether a loss that is worse left its level well inside a run, by more than one that learns nothing may move."""
    step = observations.step
    begun = min(step[0] + WELL_INSIDE * (step[-1] - step[0]), step[min(WELL_BEGUN, len(step) - 1)])
    best, settled = worse.numbers["best_level"], worse.numbers["lowest_at_the_end"]
    return bool(worse.since > begun) and settled - best > LEAST_FALL * best


def _told_by(run: Run) -> Observations:
    """Records of a run with what other lines of its log say: evaluations, and the number of classes."""
    records = with_uniform_gap(run.observations, reported_classes(run.events))
    return with_evaluations(records, *reported_evaluations(run.events))


def evidence_of(observations: Observations, names: Collection[str] = RECOGNISERS) -> dict[str, Evidence]:
    """State → what speaks for it, of those that can be judged."""
    sought = {name: recognise for name, recognise in RECOGNISERS.items() if name in names} if len(observations) else {}
    found = {name: recognise(observations) for name, recognise in sought.items()}
    return {name: evidence for name, evidence in found.items() if evidence is not None}


__all__ = [
    "BUDGET",
    "FIRST_LOOK",
    "RECOGNISERS",
    "SHIPPED",
    "URGENT",
    "Calibration",
    "Evidence",
    "History",
    "State",
    "calibrations",
    "earlier",
    "evidence_of",
    "states_of",
]
