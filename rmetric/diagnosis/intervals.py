"""Unusual intervals between the records of a training, and what they were: a gap, or another interval from then on."""

from __future__ import annotations

import numpy as np

from rmetric.records import Observations
from rmetric.robust.context import CADENCE_FACTOR, Cadence, training_rows

GAP = "there is a gap in the records before {}"
IN_BETWEEN = "a record came in between the usual ones at {}"
FROM_THEN_ON = "records came at another interval from {} on"


class UnusualIntervals:
    """Steps of the first records after an unusual interval, by what the next one shows that this was.

    Parameters
    ----------
    most
        Steps of each kind that are kept, the first ones.

    Examples
    --------
    >>> intervals = UnusualIntervals(most=6)
    >>> steps = np.array([*range(0, 500, 10), *range(900, 1400, 10)])
    >>> intervals.extend(Observations(steps, {"training_loss": np.ones(len(steps))}))
    >>> [what.format(steps) for what, steps in intervals.steps.items() if steps]
    ['there is a gap in the records before [900]']
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.steps: dict[str, list[int]] = {GAP: [], IN_BETWEEN: [], FROM_THEN_ON: []}
        self._cadence = Cadence()
        self._open: list[int] = []
        """Steps after which no record has come: a log may close with one off its grid."""
        self._latest = np.empty(0, np.int64)
        """The latest three steps of the training."""

    def extend(self, observations: Observations) -> None:
        """Take in the next records."""
        self._open += observations.step[self._cadence.extend(observations)].tolist()
        steps = np.append(self._latest, observations.step[training_rows(observations)])
        while self._open and self._open[0] < steps[-1]:
            step = self._open.pop(0)
            at = int(np.searchsorted(steps, step))
            kept = self.steps[_what(*np.diff(steps[at - 2 : at + 2]).tolist())]
            kept += [step][: self._most - len(kept)]
        self._latest = steps[-3:]


def _what(before: int, unusual: int, after: int) -> str:
    """What an interval was, by the ones before and after it."""
    if max(before, after) > CADENCE_FACTOR * min(before, after):
        return FROM_THEN_ON
    return GAP if unusual > before else IN_BETWEEN
