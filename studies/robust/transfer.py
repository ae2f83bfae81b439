"""Whether what is fitted carries over: to a kind of fault, an architecture or a study that was not fitted to.

Always fitted on fit halves (odd repetitions), threshold included, and scored on score halves under the strict protocol.
Nothing of the runs that are held out enters: neither their healthy steps nor their failures.

**Limit:** held out is what is *fitted*: tails, weights, threshold. Which statistics there are, and their constants, was
decided with all kinds of fault and all architectures in view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from rmetric.evaluation.curves import strict_curve
from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.protocols import HEALTHY, Counts
from rmetric.evaluation.split import folds
from rmetric.evaluation.thresholds import threshold_within_budget
from rmetric.records import NO_FAULT
from rmetric.robust.metric import COMPONENTS, STATISTICS
from studies.robust.fit import FOLDS, Fit, Floats, evidence, fit_or_none, statistics_of, surprises, weigh

Runs = NDArray[np.bool_]
"""True for the chosen runs, shape (runs,)."""


class StudyStatistics:
    """A study with the statistics of all its records, so that each further fit needs no pass over the logs."""

    def __init__(self, ev: Evaluator) -> None:
        self.ev = ev
        self.statistics_NJ = statistics_of(ev.study, np.ones(len(ev.timeline), bool), ev.jobs)

    def fit(self, runs_R: Runs) -> Fit | None:
        """Fitted to those of the runs that lie in the fit half; ``None`` if nothing can be fitted to them."""
        chosen = runs_R & self.ev.halves.fit
        timeline, rows = self.ev.timeline.only(chosen)
        folds_R = folds(list(compress(self.ev.study.runs, chosen)), FOLDS)
        return fit_or_none(timeline, self.statistics_NJ[rows], folds_R)

    def r(self, fitted: Fit, runs_R: Runs) -> Floats:
        """R of all records of some runs, NaN in the others; shape (records,)."""
        rows = runs_R[self.ev.timeline.run]
        r_N = np.full(len(rows), np.nan)
        timeline, _ = self.ev.timeline.only(runs_R)
        r_N[rows] = weigh(fitted.weights, evidence(fitted.tails, timeline, self.statistics_NJ[rows]))
        return r_N

    def counts(self, fitted: Fit, runs_R: Runs) -> Counts:
        """Strict counts at the fitted threshold; of use for these runs alone, the others have no score."""
        return self.ev.timeline.count("strict", self.r(fitted, runs_R), fitted.threshold)

    def causes(self, fitted: Fit, runs_R: Runs) -> Counter[str]:
        """Statistics with the largest weighted surprise in the records where false alarms begin: how many of each."""
        timeline = self.ev.timeline
        starts = timeline.starts(self.r(fitted, runs_R))
        begun = starts.at(fitted.threshold) & (starts.zone == HEALTHY)
        where = zip(starts.run[begun].tolist(), starts.step[begun].tolist(), strict=True)
        records = [np.flatnonzero((timeline.run == run) & (timeline.step == step))[0] for run, step in where]
        weights_J = np.repeat(fitted.weights, [len(component.statistics) for component in COMPONENTS])
        surprises_JN = surprises(fitted.tails, timeline, self.statistics_NJ)
        weighted_JM = weights_J[:, None] * surprises_JN[:, np.array(records, dtype=np.int64)]
        return Counter(STATISTICS[j] for j in weighted_JM.argmax(axis=0).tolist())

    @cached_property
    def home(self) -> Fit | None:
        """Fitted to the whole fit half, as the shipped settings are."""
        return self.fit(np.ones(len(self.ev.timeline), bool))

    @cached_property
    def home_counts(self) -> Counts | None:
        """Counts of the score half, with :attr:`home`."""
        return None if self.home is None else self.counts(self.home, self.ev.halves.score)


@dataclass(frozen=True)
class Transfer:
    """Counts of a fit on runs whose like it was not fitted to, beside those of the fit to the whole fit half."""

    held_out: str
    """Fault, architecture or study that was not fitted to."""
    fitted: Fit | None
    """Without it; ``None`` if nothing could be fitted, or if there are several."""
    scored: Runs
    """Runs of the score half that are scored."""
    counts: Counts | None
    """Counts with :attr:`fitted`."""
    home: Counts | None
    """Counts with :attr:`StudyStatistics.home`."""


@lru_cache(maxsize=2)
def study_statistics(ev: Evaluator) -> StudyStatistics:
    """Statistics of an evaluated study, worked out once."""
    return StudyStatistics(ev)


def fault_kinds(ev: Evaluator) -> list[str]:
    """Kinds of fault, in the order of the logs; of a combination (``A+B``) each."""
    kinds = (kind for run in ev.study.runs for kind in run.fault.split("+"))
    return [kind for kind in dict.fromkeys(kinds) if kind != NO_FAULT]


def without_fault_kinds(ev: Evaluator) -> list[Transfer]:
    """Each kind of fault, by the fit to the runs without it.

    Scored on its runs and on the control runs, which have the healthy steps in which false alarms are counted.
    """
    known, controls_R = study_statistics(ev), ev.runs_where(fault=NO_FAULT)
    faults = [run.fault.split("+") for run in ev.study.runs]
    having = {kind: np.array([kind in parts for parts in faults], bool) for kind in fault_kinds(ev)}
    return [_without(known, kind, runs_R, runs_R | controls_R) for kind, runs_R in having.items()]


def without_architectures(ev: Evaluator) -> list[Transfer]:
    """Each architecture, by the fit to the others."""
    known = study_statistics(ev)
    having = {name: ev.runs_where(model_type=name) for name in sorted({run.model_type for run in ev.study.runs})}
    return [_without(known, name, runs_R, runs_R) for name, runs_R in having.items()]


def _without(known: StudyStatistics, held_out: str, held_out_R: Runs, scored_R: Runs) -> Transfer:
    chosen = scored_R & known.ev.halves.score
    fitted = known.fit(~held_out_R)
    counts = None if fitted is None else known.counts(fitted, chosen)
    return Transfer(held_out, fitted, chosen, counts, known.home_counts)


def to_study(source: Evaluator, target: Evaluator, held_out: str) -> tuple[Transfer, Transfer]:
    """One study by the fit to another: as it is, and with the threshold alone set anew on the target's fit half."""
    known, chosen = study_statistics(target), target.halves.score
    fitted = study_statistics(source).home
    moved = None if fitted is None else known.counts(fitted, chosen)
    anew = None if fitted is None else _with_threshold_of(known, fitted)
    refitted = None if anew is None else known.counts(anew, chosen)
    return (
        Transfer(held_out, fitted, chosen, moved, known.home_counts),
        Transfer(held_out, anew, chosen, refitted, known.home_counts),
    )


def _with_threshold_of(known: StudyStatistics, fitted: Fit) -> Fit | None:
    ev = known.ev
    starts = ev.timeline.starts(known.r(fitted, ev.halves.fit))
    threshold = threshold_within_budget(strict_curve(ev.timeline, starts, ev.halves.fit))
    return None if np.isnan(threshold) else replace(fitted, threshold=threshold)


def together(held_out: str, parts: Sequence[Transfer], of_part: Sequence[Runs]) -> Transfer | None:
    """Each run by the fit that did not know its like; ``None`` if one of the parts has no fit.

    Parameters
    ----------
    held_out
        What to call it.
    parts
        Of one study.
    of_part
        The runs that each part answers for, shape (runs,) each; no run belongs to two.
    """
    counts = parts[0].counts if parts else None
    for part, runs_R in zip(parts, of_part, strict=True):
        if counts is None or part.counts is None:
            return None
        counts = _spliced(counts, part.counts, runs_R)
    if counts is None:
        return None
    runs_R = np.any([part.scored & mine for part, mine in zip(parts, of_part, strict=True)], axis=0)
    return Transfer(held_out, None, runs_R, counts, parts[0].home)


def _spliced(counts: Counts, other: Counts, runs_R: Runs) -> Counts:
    """``other`` in some runs, ``counts`` in the rest."""
    names = [item.name for item in fields(Counts) if item.name != "protocol"]
    return replace(counts, **{name: np.where(runs_R, getattr(other, name), getattr(counts, name)) for name in names})
