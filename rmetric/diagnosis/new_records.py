"""Records of a run that were not known before, out of portions or out of the whole log read again."""

from __future__ import annotations

import math

import numpy as np

from rmetric.log_reader import LATEST
from rmetric.records import Observations, Points, held

MOST_KEPT = 8192
"""Records whose losses are remembered; of a longer run every second, fourth, ... of those that were."""
FEWEST_CHANGES = 10
"""Changes of the loss in records that are known again: a run that starts over with the same seed may have the same
losses before its first updates show, and those of some objectives are ln 2 until then."""
MANY_SAME = 100
"""Records from the start of a run that are enough to know it again, however long it is."""


class NewRecords:
    """Keeps track of what is known of one run.

    Gaps of measurements that a log states now and then are filled with the latest value, across portions. A validation
    loss that arrives for the step that was the last one (an evaluation after a training entry) counts at the next
    record: no record is given twice.
    """

    def __init__(self) -> None:
        self.last_step: int | None = None
        """Of the records given so far."""
        self._last_loss = math.nan
        self._steps, self._losses = np.empty(0, np.int64), np.empty(0)
        """Of records by which those of before are known again."""
        self._latest: dict[str, float] = {}
        self._evaluated_last = False
        self._pending = math.nan

    def of(self, observations: Observations) -> Observations:
        """Records among the given ones that come after all known ones; all portions must overlap or follow."""
        if self.last_step is not None:
            known = int(np.searchsorted(observations.step, self.last_step, side="right"))
            self._note_evaluation(observations, known - 1)
            observations = observations.rows(slice(known, None))
        if not len(observations):
            return observations
        made = self._filled(observations)
        self.last_step, self._last_loss = int(made.step[-1]), float(made["training_loss"][-1])
        self._keep(made)
        self._evaluated_last = bool(made.evaluated[-1])
        self._latest |= {name: float(made.columns[name][-1]) for name in LATEST & made.columns.keys()}
        return made

    def are_of_another_run(self, observations: Observations) -> bool:
        """Whether records that begin at or before the last known step are not those of before once more."""
        if self.last_step is None or not len(observations) or observations.step[0] > self.last_step:
            return False
        row = int(np.searchsorted(observations.step, self.last_step))
        if row == len(observations) or observations.step[row] != self.last_step:
            return True
        loss = float(observations["training_loss"][row])
        return loss != self._last_loss and not math.isnan(loss + self._last_loss)

    def begin_with(self, observations: Observations) -> bool:
        """Whether records are those of before from the start, up to where the log was cut, or a portion of them ends.

        They are if more of their training losses are the same than those that any run with this seed may begin with:
        :data:`FEWEST_CHANGES` changes of the loss, in half of what is known or in :data:`MANY_SAME` records.
        """
        steps, losses = self._same(observations)
        if np.count_nonzero(losses[1:] != losses[:-1]) < FEWEST_CHANGES:
            return False
        theirs = np.count_nonzero(~np.isnan(observations["training_loss"][observations.step <= steps[-1]]))
        return bool(theirs >= MANY_SAME or 2 * len(losses) >= np.count_nonzero(~np.isnan(self._losses)))

    def same_until(self, observations: Observations) -> float:
        """Last step up to which records are those of before once more; minus infinity if they are not."""
        return max(self._same(observations)[0].tolist(), default=-math.inf)

    def _same(self, observations: Observations) -> Points:
        """Common steps with a training loss, and those losses, up to the first in which the other has another."""
        steps, ours, theirs = np.intersect1d(self._steps, observations.step, return_indices=True)
        losses, others = self._losses[ours], observations["training_loss"][theirs]
        stated = ~(np.isnan(losses) & np.isnan(others))
        same = stated & np.logical_and.accumulate((losses == others) | ~stated)
        return steps[same], losses[same]

    def _keep(self, made: Observations) -> None:
        self._steps = np.append(self._steps, made.step)
        self._losses = np.append(self._losses, made["training_loss"])
        while len(self._steps) > MOST_KEPT:
            self._steps, self._losses = self._steps[::2], self._losses[::2]

    def _note_evaluation(self, observations: Observations, row: int) -> None:
        """Keep the validation loss of the last known step if it was not there before."""
        if row < 0 or observations.step[row] != self.last_step or self._evaluated_last:
            return
        value = float(observations["validation_loss"][row])
        if observations.evaluated[row] and value != self._latest.get("validation_loss"):
            self._pending, self._evaluated_last = value, True

    def _filled(self, observations: Observations) -> Observations:
        columns, evaluated = dict(observations.columns), observations.evaluated.copy()
        if not math.isnan(self._pending):
            self._latest["validation_loss"], self._pending = self._pending, math.nan
            evaluated[0] = True
        elif "validation_loss" in columns and columns["validation_loss"][0] == self._latest.get("validation_loss"):
            evaluated[0] = False  # repeated, as in the record before
        for name in LATEST & (columns.keys() | self._latest.keys()):
            columns[name] = held(observations[name], self._latest.get(name, math.nan))
        return Observations(observations.step, columns, evaluated)
