r"""Fit the robust R-Metric to healthy runs of several sources: tails and a threshold. No fault has a part in it.

python -m studies.robust.fit --from data/real_runs.parquet --zoo data/zoo.parquet \
    --strangers data/algoperf.parquet data/nanogpt.parquet
python -m studies.robust.fit --from logs_MINE --out mine.json --budget 5e-5
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

import rmetric
from rmetric.cli import Parser, script
from rmetric.episodes import REARM_STEPS
from rmetric.errors import UserError
from rmetric.evaluation.protocols import HEALTHY, Timeline
from rmetric.evaluation.split import digest, folds, half_of
from rmetric.evaluation.studies import in_parallel, load_study
from rmetric.evaluation.thresholds import BUDGET_PER_STEP, lowest_within_budget
from rmetric.files import checksum, write_json
from rmetric.plain_numbers import rounded
from rmetric.records import Run
from rmetric.robust.columns import evidence
from rmetric.robust.metric import SHIPPED, STATISTICS, VERSION, Statistics, by_component, tails_of_components
from rmetric.robust.surprise import EVERYDAY_PER_STEP, OwnBar, Tail
from studies.abroad.sources import may_be_fitted_to, refuse_equal_names, refuse_to_fit
from studies.abroad.sources import strangers as labelled_strangers

Floats = NDArray[np.float64]
Runs = NDArray[np.bool_]

OF_THE_ZOO = ("grad_agreement.held", "update_rms.jump", "update_rms.held")
"""Statistics fitted to the zoo as well: those of updates and of the agreement of gradients, which strangers' logs do
not have. Losses of some kinds jump by design, and would make such jumps everyday."""
KNOT_DECADES = 0.5
"""Distance of the knots of a tail, in decades of rarity."""
FOLDS = 4
"""Parts of each source, each of which is judged by the tails of the others. By its own tails no healthy record exceeds
the largest value that there was of any statistic: a threshold set there gave nine in as many fresh ones."""


@dataclass(frozen=True)
class Source:
    """Runs of one origin, with the statistics of all their records."""

    name: str
    timeline: Timeline
    statistics: Floats
    """From :meth:`Statistics.of`, the runs one after the other, shape (records, statistics)."""
    folds: NDArray[np.int64]
    """Number of each run's fold, from :func:`rmetric.evaluation.split.folds`; shape (runs,)."""

    @classmethod
    def of(cls, name: str, runs: Sequence[Run], timeline: Timeline | None = None, jobs: int | None = None) -> Self:
        """A source of these runs; ``timeline`` where their zones are not those of the strict protocol."""
        return cls(name, timeline or Timeline.of(runs), statistics_of(runs, jobs), folds(runs, FOLDS))

    def only(self, runs_R: Runs) -> Source:
        """Some of the runs."""
        timeline, rows = self.timeline.only(runs_R)
        return Source(self.name, timeline, self.statistics[rows], self.folds[runs_R])


@dataclass(frozen=True)
class Fit:
    """Settings that were fitted."""

    tails: dict[str, Tail]
    threshold: float


def fit(sources: Sequence[Source], budget_per_step: float = BUDGET_PER_STEP) -> Fit:
    """Tails of all sources, and the lowest threshold that keeps the budget in each of them.

    The worst source decides, for the tails as for the threshold: what is everyday anywhere surprises nobody. Nothing
    but healthy records is looked at.

    Parameters
    ----------
    budget_per_step
        False alarms a healthy step (of strangers' runs: a record) in each source.

    Raises
    ------
    UserError
        If no record was healthy and judged.
    """
    thresholds = []
    for source in sources:
        starts = source.timeline.starts(cross_fitted(source, sources))
        healthy, every = float(source.timeline.healthy_steps.sum()), np.ones(len(source.timeline), bool)
        thresholds.append(lowest_within_budget(starts, healthy, every, budget_per_step))
    known = [threshold for threshold in thresholds if not math.isnan(threshold)]
    if not known:
        raise UserError("no record was healthy and judged; fit to a larger study")
    return Fit(fit_tails(sources), max(known))


def cross_fitted(source: Source, sources: Sequence[Source]) -> Floats:
    """R of one source's records by the tails of its other folds and of the other sources, shape (records,)."""
    r_N = np.zeros(len(source.statistics))
    others = [other for other in sources if other is not source]
    for fold in np.unique(source.folds).tolist():
        judged_R = source.folds == fold
        tails = fit_tails([*others, source.only(~judged_R)])
        r_N[judged_R[source.timeline.run]] = r_of(tails, source.only(judged_R))
    return r_N


def fit_tails(sources: Sequence[Source]) -> dict[str, Tail]:
    """Tails of all statistics, of the worst source at each height; those that never moved are left out."""
    found = {
        name: worst([fit_tail(source.timeline, source.statistics[:, j]) for source in sources])
        for j, name in enumerate(STATISTICS)
    }
    return {name: tail for name, tail in found.items() if tail.bars}


def worst(tails: Sequence[Tail]) -> Tail:
    """The tail that surprises least at each height."""
    known = [tail for tail in tails if tail.bars]
    bars = sorted({bar for tail in known for bar in tail.bars})
    least = [min(tail.surprise(bar) for tail in known) for bar in bars]
    return Tail(tuple(bars), tuple(itertools.accumulate(least, max)))


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


def r_of(tails: dict[str, Tail], source: Source) -> Floats:
    """R of a source's records, as :class:`RobustRMetric`; shape (records,)."""
    of_components, r_N = tails_of_components(tails), np.empty(len(source.statistics))
    for begin, end in itertools.pairwise(source.timeline.bounds.tolist()):
        parts = zip(of_components, by_component(source.statistics[begin:end]), strict=True)
        r_N[begin:end] = np.max([evidence(known, OwnBar(), part) for known, part in parts], axis=0)
    return r_N


def statistics_of(runs: Sequence[Run], jobs: int | None = None) -> Floats:
    """Statistics of runs, one after the other, shape (records, statistics)."""
    observed = [run.observations for run in runs]
    found = in_parallel(Statistics.of, observed, jobs, "statistics of the robust metric", "run")
    return np.concatenate([np.empty((0, len(STATISTICS))), *found])


def settings_of(sources: Sequence[Source], checksums: dict[str, str], budget_per_step: float) -> dict[str, Any]:
    fitted = fit(sources, budget_per_step)
    return {
        "version": VERSION,
        "threshold": math.ceil(1000.0 * fitted.threshold) / 1000.0,
        "budget_per_step": budget_per_step,
        "tails": {
            name: {"bars": rounded(tail.bars, 6), "surprises": rounded(tail.surprises, 6)}
            for name, tail in fitted.tails.items()
        },
        "provenance": {
            "sources": {
                source.name: {
                    "runs": len(source.timeline),
                    "healthy_steps": int(source.timeline.healthy_steps.sum()),
                    "data_sha256": checksums[source.name],
                }
                for source in sources
            },
            "package_version": rmetric.__version__,
        },
    }


def fit_half(path: Path, jobs: int | None = None) -> list[Run]:
    """The fit half (odd repetitions or seeds) of a study."""
    study = load_study(path, jobs)
    chosen = half_of(study.runs, "fit")
    if not chosen:
        raise UserError(f"{path} has no run in the fit half (odd repetitions); give a whole study")
    return chosen


def strangers(path: Path, jobs: int | None = None) -> Source:
    """A source of strangers' runs, whose clock is the record."""
    labelled = labelled_strangers(path, path.stem)
    return Source.of(labelled.name, labelled.study.runs, labelled.timeline, jobs)


def zoo(path: Path, jobs: int | None = None) -> Source:
    """The kinds of a zoo that may be fitted to, with :data:`OF_THE_ZOO` alone."""
    runs = [run for run in load_study(path, jobs).runs if may_be_fitted_to(run.model_type)]
    whole = Source.of(path.stem, runs, jobs=jobs)
    return replace(whole, statistics=np.where(np.isin(STATISTICS, OF_THE_ZOO), whole.statistics, np.nan))


def parser() -> Parser:
    p = Parser("Fit the robust R-Metric to healthy records: of studies' fit halves (odd repetitions).")
    p.add_argument("--from", dest="logs", type=Path, nargs="*", default=[], help="studies: folders or .parquet files")
    p.add_argument("--strangers", type=Path, nargs="*", default=[], help="data sets of strangers' runs (.parquet)")
    p.add_argument(
        "--zoo", type=Path, nargs="*", default=[], help="zoos of trainings: half of their kinds, updates alone"
    )
    p.add_argument("--out", type=Path, default=SHIPPED, help="settings file to write (default: the shipped one)")
    p.add_argument("--budget", type=float, default=BUDGET_PER_STEP, help="false alarms per healthy step in each source")
    p.add_jobs()
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    if not 0.0 < args.budget < 1.0:
        raise UserError(f"--budget must be between 0 and 1 false alarms a healthy step, not {args.budget}")
    if not (args.logs or args.strangers or args.zoo):
        raise UserError("there is nothing to fit to; give studies by --from, strangers' runs by --strangers, or --zoo")
    places = [*args.logs, *args.strangers, *args.zoo]
    refuse_equal_names([path.stem for path in places])
    for place in places:
        refuse_to_fit(place)
    own = {path.stem: fit_half(path, args.jobs) for path in args.logs}
    sources = [Source.of(name, runs, jobs=args.jobs) for name, runs in own.items()]
    sources += [strangers(path, args.jobs) for path in args.strangers]
    sources += [zoo(path, args.jobs) for path in args.zoo]
    checksums = {name: digest(runs) for name, runs in own.items()}
    checksums |= {path.stem: checksum(path) for path in (*args.strangers, *args.zoo)}
    content = settings_of(sources, checksums, args.budget)
    write_json(args.out, content)
    print(f"{args.out}: threshold {content['threshold']:.4g}")
    for name, origin in content["provenance"]["sources"].items():
        print(f"fitted to {name}: {origin['runs']} runs, {origin['healthy_steps']:,} healthy steps")


if __name__ == "__main__":
    sys.exit(main())
