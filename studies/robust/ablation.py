"""Leave each statistic, and each source, out of the robust R-Metric's fit: what it costs at home and abroad.

    python -m studies.robust.ablation

Every line is fitted anew, threshold included, and scored on what no line was fitted to: the study's score half, the
zoo's kinds that are not fitted to, its bugs; a source of strangers that is left out is scored as well.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rmetric.cli import Parser, script
from rmetric.dataset.read import read_runs
from rmetric.evaluation.protocols import Counts
from rmetric.evaluation.scores import f1, recall, totals
from rmetric.evaluation.split import half_of
from rmetric.evaluation.studies import load_study
from rmetric.reporting.table import Cell, Column, Table, to_screen
from rmetric.robust.metric import STATISTICS
from studies import DATA
from studies.abroad.sources import may_be_fitted_to
from studies.robust.fit import Fit, Source, fit, r_of, strangers, zoo

HOME, STRANGERS = "real_runs", ("algoperf", "nanogpt")
ABROAD = ("zoo", "bugs")
COLUMNS = (
    Column("left_out", "Left out"),
    Column("threshold", "Threshold", 3),
    Column("f1", "F1, score half", 3),
    Column("bugs", "Recall, bugs", 3),
    *(Column(name, f"{name}: false alarms per 10,000", 2) for name in (*STRANGERS, "zoo")),
)


@dataclass(frozen=True)
class Scored:
    """What is scored of one line."""

    home: Source
    abroad: dict[str, Source]
    """Strangers' sources, zoo and bugs, by name."""


def rows(sources: Sequence[Source], scored: Scored) -> Iterator[dict[str, Cell]]:
    """One row with nothing left out, one without each statistic, one without each source."""
    yield _row("nothing", fit(sources), scored)
    for index, name in enumerate(STATISTICS):
        if any(np.isfinite(source.statistics[:, index]).any() for source in (*sources, *scored.abroad.values())):
            yield _row(name, fit([_without(source, index) for source in sources]), _all_without(scored, index))
    for source in sources:
        yield _row(f"source {source.name}", fit([other for other in sources if other is not source]), scored)


def _without(source: Source, index: int) -> Source:
    """The same with a statistic that was never judged."""
    statistics = source.statistics.copy()
    statistics[:, index] = np.nan
    return replace(source, statistics=statistics)


def _all_without(scored: Scored, index: int) -> Scored:
    abroad = {name: _without(source, index) for name, source in scored.abroad.items()}
    return Scored(_without(scored.home, index), abroad)


def _row(left_out: str, fitted: Fit, scored: Scored) -> dict[str, Cell]:
    at_home = totals(_counts(fitted, scored.home))
    row: dict[str, Cell] = {"left_out": left_out, "threshold": fitted.threshold, "f1": float(f1(at_home))}
    for name, source in scored.abroad.items():
        counts = _counts(fitted, source)
        if name == "bugs":
            row[name] = float(recall(totals(counts.of(source.timeline.warnable))))
        else:
            row[name] = 1e4 * float(counts.fp.sum()) / float(counts.healthy_steps.sum())
    return row


def _counts(fitted: Fit, source: Source) -> Counts:
    return source.timeline.count("strict", r_of(fitted.tails, source), fitted.threshold)


def parser() -> Parser:
    p = Parser("Leave each statistic and each source out of the robust R-Metric's fit, and score what is left.")
    p.add_argument("--data", type=Path, default=DATA, help="folder of the data sets")
    p.add_jobs()
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    study = load_study(args.data / f"{HOME}.parquet", args.jobs)
    to_fit = Source.of(HOME, half_of(study.runs, "fit"), jobs=args.jobs)
    to_score = Source.of(HOME, half_of(study.runs, "score"), jobs=args.jobs)
    theirs = [strangers(args.data / f"{name}.parquet", args.jobs) for name in STRANGERS]
    abroad = {source.name: source for source in theirs}
    ours = {name: read_runs(args.data / f"{name}.parquet") for name in ABROAD}
    ours["zoo"] = [run for run in ours["zoo"] if not may_be_fitted_to(run.model_type)]
    abroad |= {name: Source.of(name, runs, jobs=args.jobs) for name, runs in ours.items()}
    sources = [to_fit, *theirs, zoo(args.data / "zoo.parquet", args.jobs)]
    found = list(rows(sources, Scored(to_score, abroad)))
    print(to_screen(Table("ablation", "Ablation of the robust R-Metric", "", COLUMNS, found)))


if __name__ == "__main__":
    sys.exit(main())
