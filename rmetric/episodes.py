"""Alert episodes: alerts that are fewer than 50 quiet steps apart are one event.

An alert begins an episode if it is the first of its run, or if the records between it and the alert before, all of them
quiet, cover at least 50 steps: step of the record before it − step of the alert before ≥ 50. :func:`rearmed` is this
rule; it is asked record by record (:meth:`Rearm.begins`), cause by cause (:class:`EpisodesByCause`), portion by portion
(:meth:`Rearm.extend`), run by run (:func:`episodes`), and for all thresholds at once (:func:`quiet_records`,
:func:`begins`). A person is told again of an episode that has become much worse; where episodes are counted it is one.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rmetric.compiled import compiled

REARM_STEPS = 50
WORSE, WORSE_STEPS = 2.0, 8
"""Factor by which a score exceeds all before so many quiet steps of its episode, where a person is told again: a bad
batch may come shortly before a failure."""
LONG_AGO = -(2**62)
"""Step of the alert before the first one."""

Steps = TypeVar("Steps", int, NDArray[np.int64])


def rearmed(record_before: Steps, alert_before: Steps, after: int = REARM_STEPS) -> Steps:
    """Return whether an alert comes after so many quiet steps, by the steps of the record and the alert before it."""
    return record_before - alert_before >= after  # type: ignore[return-value]


class Rearm:
    """Merges the alerts of one run into episodes while its records arrive, one by one or several at a time."""

    def __init__(self) -> None:
        self._record_before, self._alert_before = 0, LONG_AGO

    def begins(self, step: int, alert: bool) -> bool:
        """Return whether an episode begins at the next record."""
        begins = alert and bool(rearmed(self._record_before, self._alert_before))
        self._record_before = step
        if alert:
            self._alert_before = step
        return begins

    def extend(self, step: NDArray[np.int64], alerts: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Indices of those of the next records, each of shape (n,), at which an episode begins."""
        at = np.flatnonzero(alerts)
        if len(at):
            record_before = np.append(self._record_before, step[:-1])[at]
            at = at[rearmed(record_before, np.append(self._alert_before, step[at[:-1]]))]
            self._alert_before = int(step[alerts][-1])
        self._record_before = int(step[-1]) if len(step) else self._record_before
        return at


class EpisodesByCause:
    """The same, record by record, apart for each cause of an alert: one that goes on hides no other, nor a much worse
    one of its own.
    """

    _scores: dict[str, tuple[float, float]] | None = None
    """Of each cause's latest episode the largest score before its last quiet steps, and of all; ``None``: before any,
    and in an older state."""

    def __init__(self) -> None:
        self._record_before = 0
        self._alert_before: dict[str, int] = {}

    def begin(self, step: int, causes: Collection[str], score: float = 0.0) -> list[str]:
        """Causes of the next record of which an episode begins there, or has become much worse by this score.

        >>> apart = EpisodesByCause()
        >>> apart.begin(1, ["machine"]), apart.begin(2, ["machine", "off_course"]), apart.begin(3, ["off_course"])
        (['machine'], ['off_course'], [])
        >>> scores = {4: 3.0, 12: 0.0, 13: 4.0, 14: 7.0, 15: 9.0}
        >>> [step for step, score in scores.items() if apart.begin(step, ["loss"] if score else [], score)]
        [4, 14]
        """
        begun = [cause for cause in causes if self._is_told(cause, score)]
        self._record_before = step
        self._alert_before.update(dict.fromkeys(causes, step))
        return begun

    def _is_told(self, cause: str, score: float) -> bool:
        alert_before = self._alert_before.get(cause, LONG_AGO)
        begins = bool(rearmed(self._record_before, alert_before))
        before, largest = (self._scores or {}).get(cause, (math.inf, math.inf))
        if begins:
            before, largest = math.inf, score
        elif rearmed(self._record_before, alert_before, WORSE_STEPS):
            before = largest
        worse = score > WORSE * before > 0.0
        scores = math.inf if worse else before, max(score, largest)
        self._scores = {**(self._scores or {}), cause: scores}
        return begins or worse


def episodes(step: NDArray[np.int64], alerts: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Indices of the records at which an alert episode of one run begins.

    Parameters
    ----------
    step
        Steps of the records, shape (n,), increasing.
    alerts
        Whether the detector alerts at each record, shape (n,).

    Examples
    --------
    >>> episodes(np.array([10, 20, 30, 80, 90, 100]), np.array([True, True, False, False, True, False])).tolist()
    [0, 4]
    """
    return Rearm().extend(step, alerts)


def quiet_records(step: NDArray[np.integer]) -> NDArray[np.int64]:
    """Number of records right before each one of a run that must be quiet for it to begin an episode, shape (n,).

    Those that :func:`rearmed` would not let pass as the alert before.

    >>> quiet_records(np.array([10, 20, 30, 80, 90, 100])).tolist()
    [0, 1, 2, 3, 1, 2]
    """
    count = np.zeros(len(step), dtype=np.int64)
    first_that_counts = np.searchsorted(step, step[:-1] - REARM_STEPS, side="right")
    count[1:] = np.arange(1, len(step)) - first_that_counts
    return count


def begins(scores: NDArray[np.float64], quiet: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Records at which an episode begins at some threshold, and for each the largest of the ``quiet`` scores before it.

    With the numbers of :func:`quiet_records`, of one run or of several behind one another, an episode begins at record
    i for every threshold t with ``largest[i] <= t < scores[i]``; the largest of no score is ``-inf``.

    Parameters
    ----------
    scores
        Shape (n,); a score of NaN begins nothing and ends no quiet.
    quiet
        Shape (n,).

    Returns
    -------
    tuple
        Indices of those records, increasing, and the largest score before each: two arrays of shape (begins,).
    """
    return compiled(_begins)(scores, quiet)  # type: ignore[no-any-return]


def _begins(scores: NDArray[np.float64], quiet: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """One pass: ``held`` are the records whose scores may still be the largest of a window, falling, from ``first``."""
    found, largest = np.empty(len(scores), np.int64), np.empty(len(scores))
    held = np.empty(len(scores), np.int64)
    count, first, end = 0, 0, 0
    for record in range(len(scores)):
        while first < end and held[first] < record - quiet[record]:
            first += 1
        before = scores[held[first]] if first < end else -np.inf
        if scores[record] > before:
            found[count], largest[count] = record, before
            count += 1
        if scores[record] == scores[record]:
            while first < end and scores[held[end - 1]] <= scores[record]:
                end -= 1
            held[end] = record
            end += 1
    return found[:count].copy(), largest[:count].copy()
