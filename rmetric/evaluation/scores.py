"""Scores of counts with their intervals: precision, recall, F1, lead, false-alarm rate."""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, chi2

from rmetric.evaluation.protocols import Counts, Protocol
from rmetric.streams import stable_hash

Values = NDArray[np.float64]
BootstrapWeights = NDArray[np.uint8]
"""Shape (draws, runs): how often a resample has each run; on average once, as good as never 256 times."""

LEVEL = 0.95
DRAWS = 2000
BLOCK_WEIGHTS = 2**22
"""Bootstrap weights that are worked on at once: 32 MiB."""
MAX_UNDEFINED = 0.05
"""No interval is given when the score is undefined in more than this share of the resamples."""


def resample(runs: int, draws: int, rng: np.random.Generator) -> BootstrapWeights:
    """Draws of each run in each bootstrap resample, shape (draws, runs); every row sums to ``runs``.

    Counts of a whole resample are then one matrix product with the counts of the runs, and two detectors are compared
    in pairs by use of the same weights.

    >>> resample(4, 2, np.random.default_rng(0)).sum(axis=1).tolist()
    [4, 4]
    """
    weights_BR = np.zeros((draws, runs), np.uint8)
    for rows in _blocks(weights_BR):
        drawn, count = rng.integers(runs, size=weights_BR[rows].shape), rows.stop - rows.start
        drawn += np.arange(count)[:, None] * runs
        weights_BR[rows] = np.bincount(drawn.ravel(), minlength=count * runs).reshape(count, runs)
    return weights_BR


def resample_of(runs_R: NDArray[np.bool_], draws: int = DRAWS, seed: int = 0) -> BootstrapWeights:
    """:func:`resample` of the chosen runs of a study; the same runs of it get the same resamples, whoever asks.

    >>> resample_of(np.array([True, False, True]), 2).shape
    (2, 2)
    """
    rng = np.random.default_rng((seed, stable_hash(np.packbits(runs_R).tobytes().hex())))
    return resample(int(runs_R.sum()), draws, rng)


def _blocks(weights_BR: BootstrapWeights) -> Iterator[slice]:
    """Resamples that are worked on at once; none without runs."""
    draws, runs = weights_BR.shape
    size = max(1, BLOCK_WEIGHTS // runs) if runs else draws
    return (slice(start, min(start + size, draws)) for start in range(0, draws if runs else 0, size))


def weighted_sums(weights_BR: BootstrapWeights, table_RC: Values) -> Values:
    """``weights_BR @ table_RC``, some resamples at a time: as doubles, weights take eight times the memory."""
    sums = [weights_BR[rows].astype(np.float64) @ table_RC for rows in _blocks(weights_BR)]
    return np.concatenate(sums) if sums else np.zeros((len(weights_BR), *table_RC.shape[1:]))


def percentile_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Percentile interval of a bootstrapped score, shape (draws,); (NaN, NaN) if it is too often undefined.

    >>> [round(end, 6) for end in percentile_interval(np.arange(201.0))]
    [5.0, 195.0]
    """
    undefined = np.isnan(values)
    if not len(values) or undefined.mean() > MAX_UNDEFINED:
        return math.nan, math.nan
    tail = 100.0 * (1.0 - LEVEL) / 2.0
    low, high = np.percentile(values[~undefined], [tail, 100.0 - tail])
    return float(low), float(high)


def binomial_interval(hits: float, trials: float) -> tuple[float, float]:
    """Exact two-sided interval of a share of which ``hits`` in ``trials`` were seen.

    **Source:** Clopper and Pearson 1934.

    >>> [round(end, 3) for end in binomial_interval(0, 10)]
    [0.0, 0.308]
    """
    tail = (1.0 - LEVEL) / 2.0
    low = float(beta.ppf(tail, hits, trials - hits + 1.0)) if hits > 0 else 0.0
    high = float(beta.ppf(1.0 - tail, hits + 1.0, trials - hits)) if hits < trials else 1.0
    return low, high


def poisson_upper(events: float, level: float = LEVEL) -> float:
    """Exact one-sided upper bound of a Poisson mean of which ``events`` were seen.

    .. math:: \\chi^2_{level}(2 (events + 1)) / 2

    **Source:** Garwood 1936.

    >>> round(poisson_upper(0), 3)  # the rule of three
    2.996
    """
    return float(chi2.ppf(level, 2.0 * (events + 1.0)) / 2.0)


def poisson_interval(events: float) -> tuple[float, float]:
    """Exact two-sided interval of a Poisson mean of which ``events`` were seen.

    **Source:** Garwood 1936.

    >>> [round(end, 3) for end in poisson_interval(0)]
    [0.0, 3.689]
    """
    tail = (1.0 - LEVEL) / 2.0
    return float(chi2.ppf(tail, 2.0 * events) / 2.0) if events else 0.0, poisson_upper(events, 1.0 - tail)


@dataclass(frozen=True, eq=False)
class Score:
    """A number with its 95 % interval. What is undefined is NaN and has a reason; it is never 0.

    What is undefined for the same reason is equal.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    reason: str = ""
    """Why ``value`` is undefined; empty if it is defined."""

    def _key(self) -> tuple[float | None, float | None, float | None, str]:
        value, low, high = (None if math.isnan(number) else number for number in (self.value, self.low, self.high))
        return value, low, high, self.reason

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Score) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    @property
    def defined(self) -> bool:
        return not math.isnan(self.value)

    @property
    def has_interval(self) -> bool:
        """True if both ends are known."""
        return not (math.isnan(self.low) or math.isnan(self.high))

    @classmethod
    def undefined(cls, reason: str) -> Score:
        """No value, and why."""
        return cls(math.nan, reason=reason)

    @classmethod
    def share(cls, hits: float, trials: float, reason: str = "there is none") -> Score:
        """A share with its exact interval; undefined, for this reason, without a trial.

        >>> Score.share(1, 4).value, Score.share(0, 0).reason
        (0.25, 'there is none')
        """
        return cls(hits / trials, *binomial_interval(hits, trials)) if trials else cls.undefined(reason)


@dataclass(frozen=True)
class Totals:
    """Sums over runs: of shape () for the runs themselves, (draws,) for bootstrap resamples."""

    tp: Values
    fp: Values
    fn: Values
    healthy_steps: Values
    lead: Values
    lead_available: Values
    """Steps from onset to failure, over the failed runs whose onset is known."""
    lead_used: Values
    """Steps of lead over the same runs as ``lead_available``."""
    share_used: Values
    """Sum of lead / available over the warned runs that had at least one step from onset to failure."""
    timed: Values
    """Failed runs that had such a step."""
    timed_warned: Values
    """Those of them that were warned."""

    @property
    def failed(self) -> Values:
        """Failed runs, warned or not."""
        return self.tp + self.fn


def totals(counts: Counts, weights_BR: BootstrapWeights | None = None) -> Totals:
    """Sums over runs; with bootstrap weights of shape (draws, runs), one sum a draw."""
    known = ~np.isnan(counts.available)
    lead = np.nan_to_num(counts.lead, nan=0.0)
    timed = known & (np.nan_to_num(counts.available, nan=0.0) > 0)
    share = np.divide(lead, counts.available, out=np.zeros(len(counts)), where=timed)
    columns = (
        counts.tp,
        counts.fp,
        counts.fn,
        counts.healthy_steps,
        lead,
        np.where(known, counts.available, 0.0),
        np.where(known, lead, 0.0),
        share,
        timed,
        timed & (counts.tp > 0),
    )
    table_RC = np.stack([np.where(counts.counted, column, 0) for column in columns], axis=-1).astype(np.float64)
    sums = table_RC.sum(axis=0) if weights_BR is None else weighted_sums(weights_BR, table_RC)
    return Totals(*np.moveaxis(sums, -1, 0))


class Hits(typing.Protocol):
    """True positives, false positives and failed runs (TP + FN): numbers, or arrays that broadcast."""

    @property
    def tp(self) -> Any: ...
    @property
    def fp(self) -> Any: ...
    @property
    def failed(self) -> Any: ...


class HitCounts(NamedTuple):
    """:class:`Hits` at hand."""

    tp: Any
    fp: Any
    failed: Any


def _ratio(numerator: Values, denominator: Values) -> Values:
    """NaN where the denominator is 0."""
    undefined = np.full(np.broadcast(numerator, denominator).shape, np.nan)
    return np.divide(numerator, denominator, out=undefined, where=np.asarray(denominator) > 0)


def precision(hits: Hits) -> Values:
    """TP / (TP + FP); NaN without an alarm."""
    return _ratio(hits.tp, hits.tp + hits.fp)


def recall(hits: Hits) -> Values:
    """TP / (TP + FN); NaN without a failed run."""
    return _ratio(hits.tp, hits.failed)


def f1(hits: Hits) -> Values:
    """2 TP / (2 TP + FP + FN); NaN without a failed run."""
    return np.where(np.asarray(hits.failed) > 0, _ratio(2.0 * hits.tp, hits.tp + hits.fp + hits.failed), np.nan)


def mean_lead(sums: Totals) -> Values:
    """Mean lead of the warned runs, steps."""
    return _ratio(sums.lead, sums.tp)


def false_alarms_per_1000(sums: Totals) -> Values:
    """False positives per 1,000 distinct healthy steps."""
    return _ratio(1000.0 * sums.fp, sums.healthy_steps)


def share_of_warning_time(sums: Totals) -> Values:
    """Steps of lead that were had, of all steps between onset and failure that could have been; a missed run has 0."""
    return _ratio(sums.lead_used, sums.lead_available)


def mean_share(sums: Totals) -> Values:
    """Mean over the failed runs of (failure − warning) / (failure − onset); a missed run has 0.

    Runs that failed in the step of the onset had no time, and are left out.
    """
    return _ratio(sums.share_used, sums.timed)


def mean_share_warned(sums: Totals) -> Values:
    """Mean of the same share over the warned runs alone."""
    return _ratio(sums.share_used, sums.timed_warned)


def _exact_recall(sums: Totals) -> tuple[float, float]:
    return binomial_interval(float(sums.tp), float(sums.failed))


def _exact_precision(sums: Totals) -> tuple[float, float]:
    return binomial_interval(float(sums.tp), float(sums.tp + sums.fp))


def _exact_f1(sums: Totals) -> tuple[float, float]:
    """F1 at both ends of the exact recall, the false positives as they are."""
    low, high = (float(f1(HitCounts(share * sums.failed, sums.fp, sums.failed))) for share in _exact_recall(sums))
    return low, high


def _exact_false_alarms(sums: Totals) -> tuple[float, float]:
    low, high = (1000.0 * end / float(sums.healthy_steps) for end in poisson_interval(float(sums.fp)))
    return low, high


@dataclass(frozen=True)
class Metric:
    """A score by its name."""

    function: Callable[[Totals], Values]
    undefined: str
    """Why it is undefined when it is."""
    strict_only: bool = False
    exact: Callable[[Totals], tuple[float, float]] | None = None
    """Interval in place of the bootstrap's where all resamples that have a score agree: none or all of the runs were
    hit, and a bootstrap that has never seen the other case would claim to be certain."""


METRICS: dict[str, Metric] = {
    "precision": Metric(precision, "no alarm was counted", exact=_exact_precision),
    "recall": Metric(recall, "no run failed", exact=_exact_recall),
    "f1": Metric(f1, "no run failed", exact=_exact_f1),
    "mean_lead": Metric(mean_lead, "no run was warned"),
    "share_of_warning_time": Metric(share_of_warning_time, "no run failed after an onset", strict_only=True),
    "mean_share": Metric(mean_share, "no run failed after an onset", strict_only=True),
    "mean_share_warned": Metric(mean_share_warned, "no run was warned", strict_only=True),
    "false_alarms_per_1000": Metric(
        false_alarms_per_1000, "there is no healthy step", strict_only=True, exact=_exact_false_alarms
    ),
}


def score(name: str, counts: Counts, weights_BR: BootstrapWeights | None = None) -> Score:
    """One score of :data:`METRICS` with its bootstrap interval."""
    drawn = None if weights_BR is None else totals(counts, weights_BR)
    return _score(METRICS[name], counts.protocol, totals(counts), drawn)


def _score(metric: Metric, protocol: Protocol, sums: Totals, drawn: Totals | None) -> Score:
    if metric.strict_only and protocol == "paper":
        return Score.undefined("the paper protocol counts runs, not steps or onsets")
    value = float(metric.function(sums))
    if math.isnan(value):
        return Score.undefined(metric.undefined)
    if drawn is None:
        return Score(value)
    values = metric.function(drawn)
    low, high = percentile_interval(values)
    if metric.exact is not None and (low == high or _agree(values)):
        low, high = metric.exact(sums)
    return Score(value, low, high)


def _agree(values: Values) -> bool:
    """Whether all that are defined are equal, however many are not."""
    defined = values[~np.isnan(values)]
    return len(defined) > 0 and bool((defined == defined[0]).all())


def summarise(counts: Counts, weights_BR: BootstrapWeights | None = None) -> dict[str, Score]:
    """All of :data:`METRICS`, and ``median_lead``, of some runs.

    Bootstrap weights, shape (draws, runs), are those of :func:`resample`; without them there are no intervals.
    """
    sums = totals(counts)
    drawn = None if weights_BR is None else totals(counts, weights_BR)
    summary = {name: _score(metric, counts.protocol, sums, drawn) for name, metric in METRICS.items()}
    summary["median_lead"] = median_lead(counts, weights_BR)
    return summary


def median_lead(counts: Counts, weights_BR: BootstrapWeights | None) -> Score:
    """Median lead of the warned runs, steps."""
    leads = counts.lead[counts.counted & (counts.tp > 0)]
    if not len(leads):
        return Score.undefined(METRICS["mean_lead"].undefined)
    if weights_BR is None:
        return Score(float(np.median(leads)))
    drawn = _weighted_median(leads, weights_BR, np.flatnonzero(counts.counted & (counts.tp > 0)))
    return Score(float(np.median(leads)), *percentile_interval(drawn))


def _weighted_median(values_K: Values, weights_BR: BootstrapWeights, runs_K: NDArray[np.intp]) -> Values:
    """Median of the values of some runs in each resample, shape (draws,); NaN where it has none of them."""
    order = np.argsort(values_K)
    ranked, runs_K = values_K[order], runs_K[order]
    found = np.full(len(weights_BR), np.nan)
    for rows in _blocks(weights_BR):
        reached_BK = np.cumsum(weights_BR[rows][:, runs_K], axis=1, dtype=np.float64)
        half_B1 = reached_BK[:, -1:] / 2.0
        below, above = (reached_BK >= half_B1).argmax(axis=1), (reached_BK > half_B1).argmax(axis=1)
        found[rows] = np.where(half_B1[:, 0] > 0, (ranked[below] + ranked[above]) / 2.0, np.nan)
    return found


def false_alarm_bound(counts: Counts) -> Score:
    """Exact 95 % upper bound of the false alarms per 1,000 healthy steps (one-sided, Poisson)."""
    sums = totals(counts)
    if counts.protocol == "paper":
        return Score.undefined("the paper protocol counts runs, not steps or onsets")
    if not sums.healthy_steps > 0:
        return Score.undefined(METRICS["false_alarms_per_1000"].undefined)
    return Score(1000.0 * poisson_upper(float(sums.fp)) / float(sums.healthy_steps))


def recall_at_lead(counts: Counts, required: Values) -> Values:
    """Share of the failed runs that were warned at least so many steps ahead.

    Parameters
    ----------
    required
        Required leads in steps, shape (n,).

    Returns
    -------
    array
        Shape (n,), falling; NaN if no run failed.
    """
    failed = counts.counted & (counts.tp + counts.fn > 0)
    if not failed.any():
        return np.full(len(required), np.nan)
    leads = np.sort(counts.lead[failed & (counts.tp > 0)])
    return (len(leads) - np.searchsorted(leads, required, side="left")) / failed.sum()


def difference(
    name: str, counts: Counts, other: Counts, weights_BR: BootstrapWeights | None = None, *, relative: bool = False
) -> Score:
    """Score of ``counts`` less that of ``other``, over the same runs, with a paired bootstrap interval.

    ``relative`` divides by the score of ``other`` and gives per cent.
    """

    def compare(mine: Totals, theirs: Totals) -> Values:
        a, b = metric.function(mine), metric.function(theirs)
        return _ratio(100.0 * (a - b), b) if relative else a - b

    metric = METRICS[name]
    value = float(compare(totals(counts), totals(other)))
    if math.isnan(value):
        return Score.undefined(metric.undefined if not relative else f"{metric.undefined}, or the reference is 0")
    if weights_BR is None:
        return Score(value)
    return Score(value, *percentile_interval(compare(totals(counts, weights_BR), totals(other, weights_BR))))
