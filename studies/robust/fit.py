"""Fit the robust R-Metric on the fit half of a study: tails, weights, threshold.

python -m studies.robust.fit --from logs_REAL                      # writes rmetric/robust/settings.json
python -m studies.robust.fit --from logs_REAL --out mine.json --budget 5e-5
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import rmetric
from rmetric.cli import Parser, script
from rmetric.episodes import REARM_STEPS
from rmetric.errors import UserError
from rmetric.evaluation.curves import strict_curve
from rmetric.evaluation.protocols import HEALTHY, Timeline
from rmetric.evaluation.scores import f1, mean_share, totals
from rmetric.evaluation.split import digest, folds, halves
from rmetric.evaluation.studies import Study, in_parallel, load_study
from rmetric.evaluation.thresholds import BUDGET_PER_STEP, threshold_within_budget
from rmetric.files import write_atomically
from rmetric.robust.metric import COMPONENTS, NORM_EXPONENT, SHIPPED, STATISTICS, VERSION, Statistics
from rmetric.robust.surprise import EVERYDAY_PER_STEP, BaseRate, Tail
from rmetric.signals import Weights

Floats = NDArray[np.float64]
Folds = NDArray[np.int64]

KNOT_DECADES = 0.5
"""Distance of the knots of a tail, in decades of rarity."""
FOLDS = 4
"""Parts of the runs, each of which is judged by the tails of the others. By its own tails no healthy step exceeds the
largest value that there was of any statistic: a threshold set there gave nine false alarms in as many fresh steps."""
WEIGHT_STEPS = (0.6, 0.7, 0.8, 0.9, 1.0)
NOTHING_TO_FIT = "no run of the fit half failed, or no threshold keeps the budget"


@dataclass(frozen=True)
class Fit:
    """Settings and what they did on the runs they were fitted to."""

    tails: dict[str, Tail]
    weights: Weights
    threshold: float
    f1: float
    """F1 of the runs that were fitted to, each judged by the tails of the other folds."""


def fit(timeline: Timeline, statistics_NJ: Floats, folds_R: Folds, budget_per_step: float = BUDGET_PER_STEP) -> Fit:
    """Weights and threshold by cross-fitting, then the tails of all.

    Parameters
    ----------
    timeline
        Of the runs to fit to, and no others.
    statistics_NJ
        From :meth:`Statistics.of`, the runs one after the other, shape (records, statistics).
    folds_R
        Number of each run's fold, from :func:`rmetric.evaluation.split.folds`; shape (runs,).
    budget_per_step
        False alarms per healthy step that the threshold may give at most; within it, the one of highest F1 is taken.

    Raises
    ------
    UserError
        If :func:`fit_or_none` finds nothing.
    """
    found = fit_or_none(timeline, statistics_NJ, folds_R, budget_per_step)
    if found is None:
        raise UserError(f"{NOTHING_TO_FIT}; fit to a larger study")
    return found


def fit_or_none(
    timeline: Timeline, statistics_NJ: Floats, folds_R: Folds, budget_per_step: float = BUDGET_PER_STEP
) -> Fit | None:
    """Fit as :func:`fit` does; ``None`` if no run failed, no step was healthy, or no threshold keeps the budget."""
    evidence_3N = cross_fitted(timeline, statistics_NJ, folds_R)
    best: tuple[tuple[float, float, float], Weights, float] | None = None
    for weights in weight_grid():
        r = weigh(weights, evidence_3N)
        threshold = threshold_within_budget(strict_curve(timeline, timeline.starts(r)), budget_per_step)
        if math.isnan(threshold):
            continue
        sums = totals(timeline.count("strict", r, threshold))
        # At a tie of F1 the earlier warnings, then the even weights: nothing has spoken against them.
        merit = (float(f1(sums)), float(np.nan_to_num(mean_share(sums))), sum(weights))
        if best is None or merit > best[0]:
            best = (merit, weights, threshold)
    return None if best is None else Fit(fit_tails(timeline, statistics_NJ), best[1], best[2], best[0][0])


def cross_fitted(timeline: Timeline, statistics_NJ: Floats, folds_R: Folds) -> Floats:
    """Surprise of each component by the tails of the other folds, shape (3, records)."""
    found = np.zeros((len(COMPONENTS), len(statistics_NJ)))
    for fold in np.unique(folds_R).tolist():
        others, rows = timeline.only(folds_R != fold)
        judged, _ = timeline.only(folds_R == fold)
        found[:, ~rows] = evidence(fit_tails(others, statistics_NJ[rows]), judged, statistics_NJ[~rows])
    return found


def fit_tails(timeline: Timeline, statistics_NJ: Floats) -> dict[str, Tail]:
    """Tails of all statistics in the healthy steps of a timeline; those that never moved are left out."""
    found = {name: fit_tail(timeline, statistics_NJ[:, j]) for j, name in enumerate(STATISTICS)}
    return {name: tail for name, tail in found.items() if tail.bars}


def fit_tail(timeline: Timeline, statistic_N: Floats) -> Tail:
    """Values of a statistic that healthy runs reach 10^-2, 10^-2.5, … times a step, and the largest of all.

    As in the strict protocol, what lies within 50 steps is one episode; but a value that is held for longer counts once
    for each 50 steps, or what is always there would be rare.
    """
    starts = timeline.starts(statistic_N)
    healthy = starts.zone == HEALTHY
    low, high = starts.low[healthy], starts.high[healthy]
    bars = np.unique(high[np.isfinite(high)])
    if len(bars) < 2:  # never moved: nothing to be measured, and only infinity is a surprise
        return Tail((), ())
    # Episodes that reach a bar: low < bar <= high. A lower bar merges some; what is left makes a rate that only falls.
    episodes = np.searchsorted(np.sort(low), bars) - np.searchsorted(np.sort(high), bars)
    reached = np.sort(statistic_N[(timeline.zone == HEALTHY) & ~np.isnan(statistic_N)])
    held = (len(reached) - np.searchsorted(reached, bars)) / (timeline.zone == HEALTHY).sum()
    rate = np.maximum.accumulate(episodes[::-1])[::-1] / timeline.healthy_steps.sum()
    rate = np.maximum(rate, held / REARM_STEPS)
    surprise = np.maximum(0.0, -np.log10(rate / EVERYDAY_PER_STEP))
    wanted = np.arange(0.0, surprise[-1], KNOT_DECADES)
    places = np.unique([*np.searchsorted(surprise, wanted, side="right") - 1, len(bars) - 1])
    places = places[places >= 0]
    return Tail(tuple(bars[places].tolist()), tuple(surprise[places].tolist()))


def evidence(tails: dict[str, Tail], timeline: Timeline, statistics_NJ: Floats) -> Floats:
    """Surprise of each component, shape (3, records)."""
    of_statistic = dict(zip(STATISTICS, surprises(tails, timeline, statistics_NJ), strict=True))
    return np.stack([np.max([of_statistic[name] for name in part.statistics], axis=0) for part in COMPONENTS])


def surprises(tails: dict[str, Tail], timeline: Timeline, statistics_NJ: Floats) -> Floats:
    """Surprise of each statistic, less what its base rate explains; shape (statistics, records)."""
    found = np.stack([_surprise(tails.get(name), statistics_NJ[:, j]) for j, name in enumerate(STATISTICS)])
    for low, high in itertools.pairwise(timeline.bounds.tolist()):
        for surprise_N, statistic_N in zip(found[:, low:high], statistics_NJ[low:high].T, strict=True):
            _temper(surprise_N, statistic_N, timeline.step[low:high])
    return found


def _temper(surprise_N: Floats, statistic_N: Floats, step_N: NDArray[np.int64]) -> None:
    """Take off, in place, what the run's base rate explains."""
    judged, moved = np.flatnonzero(~np.isnan(statistic_N)), np.flatnonzero(surprise_N)
    if len(moved):
        base_rate = BaseRate()
        base_rate.beyond(int(step_N[judged[0]]), 0.0)
        surprise_N[moved] = [base_rate.beyond(int(step_N[k]), float(surprise_N[k])) for k in moved]


def _surprise(tail: Tail | None, statistic_N: Floats) -> Floats:
    tail = tail or Tail((), ())
    values, index = np.unique(statistic_N, return_inverse=True)
    return np.array([tail.surprise(value) for value in values.tolist()])[index]


def weigh(weights: Weights, evidence_3N: Floats) -> Floats:
    """R of evidence, shape (records,); as :class:`RobustRMetric`, up to rounding."""
    return ((np.array(weights)[:, None] * evidence_3N) ** NORM_EXPONENT).sum(axis=0) ** (1.0 / NORM_EXPONENT)


def weight_grid() -> list[Weights]:
    """All weights of :data:`WEIGHT_STEPS` whose largest is 1: the threshold takes up any common factor."""
    grid = itertools.product(WEIGHT_STEPS, repeat=3)
    return [Weights(*weights) for weights in grid if max(weights) == 1.0]


def statistics_of(study: Study, runs_R: NDArray[np.bool_], jobs: int | None = None) -> Floats:
    """Statistics of some of the runs, one after the other, shape (records, statistics)."""
    chosen = [run.observations for run in itertools.compress(study.runs, runs_R)]
    found = in_parallel(Statistics.of, chosen, jobs, "statistics of the robust metric", "run")
    return np.concatenate([np.empty((0, len(STATISTICS))), *found])


def fit_study(study: Study, budget_per_step: float = BUDGET_PER_STEP, jobs: int | None = None) -> dict[str, Any]:
    """Contents of a settings file: fitted on the fit half of a study and nothing else."""
    runs_R = halves(study.runs).fit
    if not runs_R.any():
        raise UserError(f"{study.folder} has no run in the fit half (odd repetitions); give a whole study")
    timeline, _ = Timeline.of(study.runs).only(runs_R)
    chosen = list(itertools.compress(study.runs, runs_R))
    fitted = fit(timeline, statistics_of(study, runs_R, jobs), folds(chosen, FOLDS), budget_per_step)
    return {
        "version": VERSION,
        "weights": dict(zip(("lambda", "sigma_sq", "delta_l"), fitted.weights, strict=True)),
        "threshold": _rounded_up(fitted.threshold),
        "budget_per_step": budget_per_step,
        "tails": {
            name: {
                "bars": [_rounded(bar) for bar in tail.bars],
                "surprises": [_rounded(item) for item in tail.surprises],
            }
            for name, tail in fitted.tails.items()
        },
        "provenance": {
            "half": "fit",
            "runs": int(runs_R.sum()),
            "failed": int(timeline.failed.sum()),
            "healthy_steps": int(timeline.healthy_steps.sum()),
            "f1_on_these_runs": _rounded(fitted.f1),
            "data_sha256": digest(chosen),
            "package_version": rmetric.__version__,
        },
    }


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _rounded_up(threshold: float) -> float:
    """Round up to a thousandth: no step that is below by exact tails may exceed it by rounded ones."""
    return math.ceil(1000.0 * threshold) / 1000.0


def parser() -> Parser:
    """Command line of this module."""
    p = Parser("Fit the robust R-Metric on the fit half (odd repetitions) of a study.")
    p.add_argument("--from", dest="logs", type=Path, required=True, help="folder with the study's logs")
    p.add_argument("--out", type=Path, default=SHIPPED, help="settings file to write (default: the shipped one)")
    p.add_argument("--budget", type=float, default=BUDGET_PER_STEP, help="false alarms per healthy step")
    p.add_jobs()
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    if not 0.0 < args.budget < 1.0:
        raise UserError(f"--budget must be between 0 and 1 false alarms a healthy step, not {args.budget}")
    content = fit_study(load_study(args.logs, args.jobs), args.budget, args.jobs)
    write_atomically(args.out, json.dumps(content, indent=1).encode() + b"\n")
    weights, origin = content["weights"], content["provenance"]
    print(f"{args.out}: threshold {content['threshold']:.4g}, weights {weights}")
    print(f"fitted to {origin['runs']} runs ({origin['failed']} failed, {origin['healthy_steps']:,} healthy steps)")


if __name__ == "__main__":
    sys.exit(main(None))
