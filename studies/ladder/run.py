"""Give up the author's conditions one after the other, and score the paper's R-Metric on every rung.

    python -m studies.ladder.run                                    # 14 studies of 720 runs: two minutes
    python -m studies.ladder.run --repetitions 1 --out /tmp/ladder  # a tiny one: seconds

Writes ladder.md, .csv, .tex and figure_ladder.png, .pdf to results/ladder/. The last rungs are real training:
data/real_runs.parquet.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric.cli import Parser, output_folder, script, whole_number
from rmetric.detectors import ROBUST, make_detector
from rmetric.evaluation.protocols import Protocol, Timeline
from rmetric.evaluation.scores import DRAWS, Score, resample_of, summarise
from rmetric.evaluation.split import halves
from rmetric.evaluation.studies import load_study
from rmetric.progress import progress_bar
from rmetric.records import Run
from rmetric.reporting import style
from rmetric.reporting.table import Cell, Column, Table, to_screen, write
from studies import captions
from studies.ladder.figure import TITLE, draw
from studies.ladder.rungs import ALONE, CONDITIONS, Result, Rung, rungs
from studies.paper.plan import CONTROLS_PER_REPETITION
from studies.paper.run import simulate_study

PAPER = "r_metric"
COLUMNS = (
    Column("rung", "Rung"),
    Column("now", "With, beside all above"),
    Column("f1", "F1", 3),
    Column("precision", "Precision", 3),
    Column("recall", "Recall", 3),
    Column("lead", "Mean lead (steps)", 0),
    Column("alone", "F1, with this alone", 3),
    Column("takes_away", "What it takes away"),
)


def simulated(rung: Rung, jobs: int) -> dict[str, Score]:
    """Scores of the paper's R-Metric on one rung."""
    with TemporaryDirectory() as folder:
        simulate_study(rung.plan, Path(folder), jobs=jobs)
        study = load_study(folder, jobs)
    return scores_of(study.runs, PAPER, rung.protocol)


def scores_of(
    runs: Sequence[Run], name: str, protocol: Protocol, chosen_R: NDArray[np.bool_] | None = None
) -> dict[str, Score]:
    """Scores of a detector at its own threshold on the chosen runs; the intervals are those of the tables."""
    detector, timeline = make_detector(name), Timeline.of(runs)
    scores = np.concatenate([detector.score_run(run.observations) for run in runs])
    counts = timeline.count(protocol, scores, detector.threshold)
    kept = counts.counted if chosen_R is None else counts.counted & chosen_R
    return summarise(counts.of(kept), resample_of(kept))


def results(data: Path, jobs: int, **plan: Any) -> Iterator[Result]:
    """Every rung, those of real training at the end; ``plan`` as of :func:`studies.ladder.rungs.rungs`."""
    found, real = list(rungs(**plan)), load_study(data, jobs).runs  # a missing data set is told before the simulation
    with progress_bar(total=len(found) + 2, unit="rung", desc="ladder") as bar:
        summaries = {}
        for rung in found:
            summaries[rung.key] = simulated(rung, jobs)
            bar.update()
        for rung in found:
            if not rung.alone:
                alone = summaries.get("1" if rung.key == "1" else f"{ALONE}{rung.key}")
                f1 = None if alone is None else alone["f1"]
                runs = len(rung.plan.specs())
                yield Result(rung.key, rung.title, rung.takes_away, summaries[rung.key], runs, f1)
        summary = scores_of(real, PAPER, "strict")
        taken = f"Real loss curves let R rest now and then: some faults are seen, beside {_false_alarms(summary)}."
        yield Result(str(len(CONDITIONS) + 1), f"{len(real):,} real runs", taken, summary, len(real))
        bar.update()
        held_out_R = halves(real).score
        gives = "Given back by other estimators of the same three components, fitted to healthy records alone."
        title, scores = "the robust R-Metric on real runs", scores_of(real, ROBUST, "strict", held_out_R)
        yield Result(str(len(CONDITIONS) + 2), title, gives, scores, int(held_out_R.sum()))
        bar.update()


def _false_alarms(summary: Mapping[str, Score]) -> str:
    """How often there is a false alarm, in words."""
    rate = summary["false_alarms_per_1000"]
    if not rate.defined:
        return "no healthy step in which a false alarm could come"
    if not rate.value:
        return "no false alarm"
    return f"one false alarm in {float(f'{1000.0 / rate.value:.2g}'):,.0f} healthy steps"


def caption_of(found: Sequence[Result]) -> str:
    """Say which runs each rung is made of; the last two are real."""
    *simulations, real, held_out = found
    return (
        "R-Metric in the paper's setting. Rung 0 has all conditions of the author's files; each further one gives up "
        f"one more. Rungs 0 to {simulations[-1].key} are {simulations[0].runs:,} simulated runs each; rung {real.key} "
        f"the {real.title}; rung {held_out.key} the {held_out.runs:,} of them with even repetition, the half that the "
        f"robust R-Metric was not fitted to. Paper protocol up to rung {len(CONDITIONS) - 1}, strict from rung "
        f"{len(CONDITIONS)} on. {captions.bootstrap(DRAWS)}"
    )


def table_of(found: Sequence[Result]) -> Table:
    """The ladder as a table, one row a rung."""
    rows = [_row(result) for result in found]
    return Table("ladder", TITLE, caption_of(found), COLUMNS, rows)


def _row(result: Result) -> dict[str, Cell]:
    row: dict[str, Cell] = {"rung": result.key, "now": result.title, "alone": result.alone}
    row |= {name: result.summary[name] for name in ("f1", "precision", "recall")}
    return row | {"lead": result.summary["mean_lead"], "takes_away": result.takes_away}


def parser() -> Parser:
    p = Parser("Give up the author's conditions one after the other, and score the paper's R-Metric on every rung.")
    p.add_argument("--data", type=Path, default=Path("data/real_runs.parquet"), help="data set of real runs")
    p.add_argument("--out", type=Path, default=Path("results/ladder"), help="folder for table and figure")
    p.add_argument(
        "--repetitions", type=whole_number(1), default=8, metavar="N", help="runs of each fault and severity"
    )
    p.add_jobs()
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    out, controls = output_folder(args.out), args.repetitions * CONTROLS_PER_REPETITION
    found = list(results(args.data, args.jobs, repetitions=args.repetitions, controls=controls))
    table = table_of(found)
    write(table, out)
    style.write(draw(found, table.caption), out)
    print(to_screen(table))
    print(f"table and figure written to {out}/")


if __name__ == "__main__":
    sys.exit(main())
