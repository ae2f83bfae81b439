"""A run so far in bounded memory: neighbouring records are averaged in pairs as soon as there are too many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rmetric.measurements import Observation
from rmetric.records import (
    VALIDATION,
    Observations,
    Points,
    reported_classes,
    reported_evaluations,
    with_evaluations,
    with_uniform_gap,
)
from rmetric.state import state_of

READS = (
    *("training_loss", "validation_loss", "learning_rate", "grad_norm", "uniform_gap", "planned_changes", "reward"),
    *("step_time_s", "update_rms"),
)
"""Measurements that states are recognised from, or that a run is described by."""
MOST_RECORDS = 4096
FEW = 256
"""Single records that are appended together: to append one costs as much."""


class History:
    """Records of a run for :func:`~rmetric.states.states_of`, however long it is.

    All records up to 4,096; then the means of pairs, then of pairs of pairs, and so on. A mean leaves out what was not
    measured; it is infinite if a part of it is, and exactly 0 only if all parts are. Which records are put together
    does not depend on the chunks in which they come.

    >>> history = History(most=4)
    >>> history.extend(Observations(np.arange(1, 6), {"training_loss": np.array([5.0, 3.0, 2.0, 2.0, 1.0])}))
    >>> history.observations["training_loss"].tolist(), history.observations.step.tolist()
    ([4.0, 2.0, 1.0], [1, 4, 5])
    """

    def __init__(self, most: int = MOST_RECORDS) -> None:
        self._most = most
        self._parts: list[Observations] = []
        """Records by how many times they were halved: the first are single ones, and the latest."""
        self._waiting: list[tuple[float, ...]] = []
        """Steps, whether evaluated, and measurements of single records that are yet to be appended."""
        self._first: int | None = None
        """Step of the first record."""
        self._broken: int | None = None
        """Step from which on no training loss was finite; ``None``: the latest one is."""
        self._evaluations: Points = reported_evaluations([])
        """Steps and losses of the evaluations that the log tells of."""
        self._classes: int | None = None
        """Number of classes that the log tells of, beside its config."""

    def note(self, event: Mapping[str, Any]) -> None:
        """Take in another line of the log; of interest are evaluations, the first of each step, and classes."""
        self._classes = reported_classes([dict(event)], self._classes)
        if event.get("event") != VALIDATION:
            return
        (before, lost), (step, loss) = self._evaluations, reported_evaluations([dict(event)])
        if len(before) and len(step) and step[-1] <= before[-1]:  # a log that is read again says it again
            return
        steps, losses = np.append(before, step), np.append(lost, loss)
        if len(steps) == 2 * self._most:
            steps, losses = steps[1::2], _means(losses)
        self._evaluations = steps, losses

    @property
    def last_evaluation(self) -> tuple[int, float] | None:
        """Step and loss of the last of the evaluations that the log tells of; ``None``: there is none."""
        steps, losses = self._evaluations
        return (int(steps[-1]), float(losses[-1])) if len(steps) else None

    def add(self, observation: Observation) -> None:
        """Append one record."""
        self._waiting.append((observation.step, observation.evaluated, *map(observation.__getitem__, READS)))
        if len(self._waiting) == FEW:
            self._take_in()

    def _take_in(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            step, evaluated, *columns = map(np.array, zip(*waiting, strict=True))
            self.extend(Observations(step, dict(zip(READS, columns, strict=True)), evaluated))

    def extend(self, observations: Observations) -> None:
        """Append records."""
        self._take_in()
        if self._first is None and len(observations):
            self._first = int(observations.step[0])
        self._note_broken(observations.step, observations["training_loss"])
        # A value that is held is not to be averaged with a new one.
        columns = {name: observations.stated(name) for name in READS if name in observations.columns}
        records = Observations(observations.step, columns, observations.evaluated)
        self._parts[:1] = [self._parts[0] + records] if self._parts else [records]
        self._settle()
        while len(self._parts[-1]) > self._most:
            self._parts.append(self._parts[-1].rows(slice(0, 0)))
            self._settle()

    def _note_broken(self, steps: NDArray[np.int64], losses: NDArray[np.float64]) -> None:
        finite = np.flatnonzero(np.isfinite(losses))
        if len(finite):
            self._broken, steps, losses = None, steps[finite[-1] :], losses[finite[-1] :]
        broken = steps[np.isinf(losses)]
        if self._broken is None and len(broken):
            self._broken = int(broken[0])

    def _settle(self) -> None:
        """Halve all but the coarsest part, as far as there are pairs."""
        for level in range(len(self._parts) - 1):
            part = self._parts[level]
            even = len(part) - len(part) % 2
            if even:
                self._parts[level] = part.rows(slice(even, None))
                self._parts[level + 1] = self._parts[level + 1] + _halved(part.rows(slice(0, even)))

    @property
    def observations(self) -> Observations:
        """The run so far, the coarsest records first, each at the step of its last one, but for the very first and
        for the one in which losses cease to be finite to the end, at the first such step.

        Evaluations that the log tells of stand beside them, and the loss is compared with ln(classes) as it says.
        """
        self._take_in()
        if not self._parts:
            return Observations(np.empty(0, dtype=np.int64))
        whole = self._parts[-1]
        for part in reversed(self._parts[:-1]):
            whole = whole + part
        step = whole.step.copy()  # the records may be somebody's own, and not to be written to
        if self._broken is not None and (row := int(np.searchsorted(step, self._broken))) < len(step) - 1:
            step[row] = self._broken
        if len(step) and self._first is not None:
            step[0] = self._first
        records = with_uniform_gap(Observations(step, whole.columns, whole.evaluated), self._classes)
        return with_evaluations(records, *self._evaluations)

    def state_dict(self) -> dict[str, Any]:
        """The records in plain values: some 290 kB at most."""
        self._take_in()
        return {
            "first": self._first, "broken": self._broken, "classes": self._classes,
            "parts": state_of(self._parts), "evaluations": state_of(self._evaluations),
        }  # fmt: skip

    @classmethod
    def of_state(cls, state: Mapping[str, Any], most: int = MOST_RECORDS) -> Self:
        """One that goes on from a state."""
        history = cls(most)
        history._first, history._broken = state.get("first"), state.get("broken")  # which a state of before lacks
        history._classes = state.get("classes")
        history._parts = [_records_of(**part) for part in state["parts"]]
        steps, losses = state["evaluations"]
        history._evaluations = np.array(steps, dtype=np.int64), np.array(losses, dtype=np.float64)
        return history


def _records_of(step: Sequence[int], columns: Mapping[str, Sequence[float]], evaluated: Sequence[bool]) -> Observations:
    measured = {name: np.array(column, dtype=np.float64) for name, column in columns.items()}
    return Observations(np.array(step, dtype=np.int64), measured, np.array(evaluated, dtype=bool))


def _halved(observations: Observations) -> Observations:
    """Means of neighbouring pairs; an even number of records."""
    columns = {name: _means(column) for name, column in observations.columns.items()}
    return Observations(observations.step[1::2], columns, observations.evaluated[::2] | observations.evaluated[1::2])


def _means(column: NDArray[np.float64]) -> NDArray[np.float64]:
    first, second = column[::2], column[1::2]
    mean = 0.5 * first + 0.5 * second
    return np.where(np.isnan(first), second, np.where(np.isnan(second), first, mean))
