"""All thresholds at once: precision–recall, ROC and free-response ROC."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmetric.evaluation import scores
from rmetric.evaluation.protocols import HEALTHY, WARNING, Protocol, ScoreColumn, Starts, Timeline
from rmetric.evaluation.scores import HitCounts, Score


@dataclass(frozen=True)
class Curve:
    """Hits and false alarms of a detector at every threshold: arrays of shape (thresholds,), thresholds increasing.

    Between two neighbouring thresholds nothing changes. Neither recall nor the number of false alarms need be monotone
    under the strict protocol: a lower threshold merges episodes, and may move the begin of one to before the onset.
    """

    protocol: Protocol
    threshold: NDArray[np.float64]
    tp: NDArray[np.int32]
    """Failed runs that were warned."""
    fp: NDArray[np.int32]
    """False alarms: episodes (strict), or runs that did not fail and alarmed (paper)."""
    failed: int
    """Failed runs."""
    healthy: int
    """Distinct healthy steps (strict), or runs that did not fail (paper)."""

    @property
    def precision(self) -> NDArray[np.float64]:
        """NaN where there is no alarm."""
        return scores.precision(self)

    @property
    def recall(self) -> NDArray[np.float64]:
        """NaN if no run failed."""
        return scores.recall(self)

    @property
    def f1(self) -> NDArray[np.float64]:
        """NaN if no run failed."""
        return scores.f1(self)

    @property
    def false_alarm_rate(self) -> NDArray[np.float64]:
        """Per 1,000 healthy steps (strict); share of the runs that did not fail (paper). NaN if there are none."""
        return self._rate(self.fp)

    def _rate(self, fp: NDArray[np.integer]) -> NDArray[np.float64]:
        scale = 1000.0 if self.protocol == "strict" else 1.0
        return scale * fp / self.healthy if self.healthy else np.full(len(fp), np.nan)

    def frontier(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Best recall at each false-alarm rate or below: (rates, recalls), both increasing; the free-response ROC."""
        tp = np.full(self.fp.max(initial=-1) + 1, -1, self.tp.dtype)
        np.maximum.at(tp, self.fp, self.tp)  # by number of false alarms
        best = np.maximum.accumulate(tp)
        fp = np.flatnonzero(np.diff(best, prepend=-1) > 0)
        return self._rate(fp), scores.recall(HitCounts(best[fp], fp, self.failed))

    def precision_recall(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Best precision at each recall or above: (recalls increasing from 0, precisions falling).

        Both are empty if no threshold warns a run.
        """
        never = np.iinfo(self.fp.dtype).max
        fp = np.full(self.tp.max(initial=0) + 1, never, self.fp.dtype)
        np.minimum.at(fp, self.tp, self.fp)  # by number of warned runs
        tp = 1 + np.flatnonzero(fp[1:] < never)
        if not self.failed or not len(tp):
            return np.empty(0), np.empty(0)
        best = HitCounts(tp, fp[tp], self.failed)
        precision = np.maximum.accumulate(scores.precision(best)[::-1])[::-1]
        return np.concatenate([[0.0], scores.recall(best)]), np.concatenate([precision[:1], precision])

    def average_precision(self) -> Score:
        """Area under :meth:`precision_recall`.

        .. math:: \\sum_k (r_k - r_{k-1}) \\max_{r_j \\ge r_k} p_j

        **Deviation:** for ``strict`` the precision is interpolated (best at that recall or above), because recall is
        not monotone in the threshold and the plain sum is not defined; ``paper`` uses scikit-learn's plain sum.
        """
        if not self.failed:
            return Score.undefined("no run failed")
        if self.protocol == "strict" and not self.healthy:
            return Score.undefined("there is no healthy step")
        if self.protocol == "paper":
            return Score(self._plain_average_precision())
        recall, precision = self.precision_recall()
        return Score(float(np.sum(np.diff(recall) * precision[1:])))

    def _plain_average_precision(self) -> float:
        recall, precision = self.recall[::-1], np.nan_to_num(self.precision[::-1], nan=0.0)
        return float(np.sum(np.diff(np.concatenate([[0.0], recall])) * precision))


def strict_curve(timeline: Timeline, starts: Starts, runs_R: NDArray[np.bool_] | None = None) -> Curve:
    """The strict protocol at every threshold, for all runs or some.

    Each start begins an episode for low ≤ threshold < high (:class:`Starts`), so false alarms are counted by adding 1
    at every low and taking 1 off at every high; a run is warned on the union of its intervals.
    """
    chosen = timeline.counted("strict") if runs_R is None else timeline.counted("strict") & runs_R
    here = chosen[starts.run]
    values = _distinct(np.concatenate([starts.low[here], starts.high[here], [-np.inf]]))
    false, warning = here & (starts.zone == HEALTHY), here & (starts.zone == WARNING)

    # Which begin belongs to which end does not matter for a number, and what is sorted is found in a third of the time.
    low, high = (np.searchsorted(values, np.sort(ends[false])) for ends in (starts.low, starts.high))
    fp = covered(low, high, len(values))
    low, high = (np.searchsorted(values, ends[warning]) for ends in (starts.low, starts.high))
    tp = covered(*_unions(starts.run[warning], low, high, len(values)), len(values))
    finite = int(np.searchsorted(values, np.inf))
    return Curve(
        "strict",
        values[:finite],
        tp[:finite],
        fp[:finite],
        failed=int((chosen & timeline.failed).sum()),
        healthy=int(timeline.healthy_steps[chosen].sum()),
    )


def paper_curve(timeline: Timeline, scores: ScoreColumn, runs_R: NDArray[np.bool_] | None = None) -> Curve:
    """The paper protocol at every threshold: a run is judged by its highest score."""
    chosen = timeline.counted("paper") if runs_R is None else timeline.counted("paper") & runs_R
    highest, failed = timeline.highest(scores)[chosen], timeline.failed[chosen]
    values, rank = np.unique(np.concatenate([highest, [-np.inf]]), return_inverse=True)
    rank = rank[:-1]
    zero = np.zeros_like(rank)
    finite = values < np.inf
    return Curve(
        "paper",
        values[finite],
        covered(zero[failed], rank[failed], len(values))[finite],
        covered(zero[~failed], rank[~failed], len(values))[finite],
        failed=int(failed.sum()),
        healthy=int((~failed).sum()),
    )


def curve_of(timeline: Timeline, scores: NDArray[np.float64], protocol: Protocol) -> Curve:
    """Curve of scores, one a record, under a protocol."""
    if protocol == "strict":
        return strict_curve(timeline, timeline.starts(scores))
    return paper_curve(timeline, scores)


def covered(low: NDArray[np.int64], high: NDArray[np.int64], size: int) -> NDArray[np.int32]:
    """Number of the intervals [low, high) that hold each of 0 … size − 1, with high ≤ size − 1."""
    count, one = np.zeros(size, np.int32), np.int32(1)  # of the same type: NumPy is fifty times as fast then
    np.add.at(count, low, one)  # in half the memory of np.bincount
    np.subtract.at(count, high, one)
    return np.cumsum(count, out=count)


def _distinct(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """``np.unique``, in the memory of the values themselves."""
    values.sort()
    return values[np.concatenate([[True], values[1:] != values[:-1]])]


def _unions(
    run: NDArray[np.int32], low: NDArray[np.int64], high: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Disjoint intervals with the same union a run as the given ones."""
    if not len(run):
        return low, high
    order = np.lexsort((low, run))
    run, low, high = run[order].astype(np.int64), low[order], high[order]
    # Runs come in order, so an offset a run keeps the running maximum from leaking into the next run.
    reach = np.maximum.accumulate(run * size + high)
    begins = np.concatenate([[True], run[1:] * size + low[1:] > reach[:-1]])
    ends = np.concatenate([begins[1:], [True]])
    return low[begins], reach[ends] - run[ends] * size
