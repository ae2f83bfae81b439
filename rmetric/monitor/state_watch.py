"""The states of a run that is watched: looked at now and then while it goes on, and at its end."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from rmetric.advice import action_in_state
from rmetric.records import Event, Observations
from rmetric.states import FIRST_LOOK, RECOGNISERS, URGENT, State, states_of
from rmetric.verdict import STATE

LOOK_S, URGENT_S = 2.0, 0.001
"""Seconds that the first look may take: it imports SciPy's tests; and each one at urgent states alone. The first of
these takes longer, since it reads a file, and says nothing of the next."""
SHARE = 0.005
"""Largest share of the time of training that goes into looks."""
FIRST_URGENT, GROWTH = 64, 1.125
"""Records at the first look at urgent states, and how many times as many there are at the next."""


class StateWatch:
    """Tells when a run comes into a state that healthy runs are seldom in, and when it is out of it.

    It looks after 512 records, 1,024, and so on: ten times in a run of 262,144. How sure a state is follows from ten
    looks at healthy runs. At the urgent states it looks each time the records have grown by an eighth.
    """

    # What the state of an older version lacks stands in the class alone.
    _next_urgent = FIRST_URGENT
    _whole = True
    """Whether the next look is at all states, as the last one is, which is due to no record."""

    def __init__(self) -> None:
        self._records, self._next = 0, FIRST_LOOK
        self._spent_s, self._expected_s = 0.0, LOOK_S
        self._names: list[str] = []
        """States at the latest look."""

    def is_due(self, elapsed_s: float) -> bool:
        """Count a record of a run that has been trained for so long; whether to look now."""
        self._records += 1
        left_s = SHARE * elapsed_s - self._spent_s
        whole = self._records >= self._next and self._expected_s <= left_s
        urgent = self._records >= self._next_urgent and left_s >= URGENT_S
        self._whole = whole or not urgent
        return whole or urgent

    def look(self, step: int, seen: Observations | None) -> list[Event]:
        """Lines on the states that the run has entered or left since the last look.

        ``None``: the run is not known as a whole, and there is no news.
        """
        whole, self._whole = self._whole, True
        self._next_urgent = int(GROWTH * self._records) + 1
        if whole:
            self._next = 2 * self._records
        if seen is None:
            return []
        sought = {*RECOGNISERS} if whole else URGENT
        before, states = self._names, self._states_of(seen, sought)
        self._names = [*(name for name in before if name not in sought), *(state.name for state in states)]
        over = [_over(step, name) for name in before if name not in self._names]
        return [*over, *(_entered(step, state, states) for state in states if state.name not in before)]

    def _states_of(self, seen: Observations, sought: Collection[str]) -> list[State]:
        began_s = time.perf_counter()
        try:
            return states_of(seen, names=sought)
        finally:  # a look that fails costs as much
            took_s = time.perf_counter() - began_s
            self._spent_s += took_s
            if sought is not URGENT:
                self._expected_s = took_s


def _entered(step: int, state: State, states: Sequence[State]) -> Event:
    return {
        "event": STATE,
        "step": step,
        "state": state.name,
        "since": state.since,
        "sure": state.sure,
        "message": f"Step {step}: the run is in the state {state}. {action_in_state(state, states)}",
    }


def _over(step: int, name: str) -> Event:
    told = f"Step {step}: the run is not in the state {name} any more."
    return {"event": STATE, "step": step, "state": name, "over": True, "message": told}
