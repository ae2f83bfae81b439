"""The states of a run that is watched: looked at now and then while it goes on, and at its end."""

from __future__ import annotations

import time

from rmetric.advice import ADVICE
from rmetric.records import Event, Observations
from rmetric.states import FIRST_LOOK, State, states_of
from rmetric.verdict import STATE

LOOK_S = 2.0
"""Seconds that the first look may take: it imports SciPy's tests."""
SHARE = 0.005
"""Largest share of the time of training that goes into looks."""


class StateWatch:
    """Tells when a run comes into a state that healthy runs are seldom in, when it is out of it, and how it ends.

    It looks after 512 records, 1,024, and so on: ten times in a run of 262,144. How sure a state is follows from ten
    looks at healthy runs.
    """

    def __init__(self) -> None:
        self._records, self._next = 0, FIRST_LOOK
        self._spent_s, self._expected_s = 0.0, LOOK_S
        self._names: list[str] = []
        """States at the latest look."""

    def is_due(self, elapsed_s: float) -> bool:
        """Count a record of a run that has been trained for so long; whether to look now."""
        self._records += 1
        return self._records >= self._next and self._spent_s + self._expected_s <= SHARE * elapsed_s

    def look(self, step: int, seen: Observations) -> list[Event]:
        """What is news at this step: states in which the run is by now, and such in which it is no more."""
        before, states = self._names, self._looked(seen)
        news = [_told(step, state, "is") for state in states if state.name not in before]
        return [*self._over(step, before), *news]

    def end(self, step: int, seen: Observations) -> list[Event]:
        """States in which a run is at its end, and such in which it is no more."""
        before, states = self._names, self._looked(seen)
        return [*self._over(step, before), *(_told(step, state, "ends") for state in states)]

    def _looked(self, seen: Observations) -> list[State]:
        began_s = time.perf_counter()
        states = states_of(seen)
        self._names = [state.name for state in states]
        self._expected_s = time.perf_counter() - began_s
        self._spent_s += self._expected_s
        self._next = 2 * self._records
        return states

    def _over(self, step: int, before: list[str]) -> list[Event]:
        return [
            {
                "event": STATE,
                "step": step,
                "state": name,
                "over": True,
                "message": f"Step {step}: the run is not in the state {name} any more.",
            }
            for name in before
            if name not in self._names
        ]


def _told(step: int, state: State, verb: str) -> Event:
    return {
        "event": STATE,
        "step": step,
        "state": state.name,
        "since": state.since,
        "sure": state.sure,
        "message": f"Step {step}: the run {verb} in the state {state}. {ADVICE[state.name].action}",
    }
