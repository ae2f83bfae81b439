"""Score the comparison of two runs on twins, whose onset is known, and on healthy pairs of other seeds.

    python -m studies.compare                                             # data/real_runs.parquet: two minutes
    python -m studies.compare --data data/real_runs_fresh.parquet --half all
    python -m studies.compare --half fit --fit                            # what healthy pairs reach, for thresholds

Same seed: a faulty run against its fault-free twin. Other seed: against the control of the next seed of the same model.
Healthy pairs are also compared with a shift added to the training loss of one of them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rmetric.cli import Parser, output_folder, script
from rmetric.comparison import SIGNALS
from rmetric.comparison.compare import PLANNED
from rmetric.evaluation.scores import Score
from rmetric.evaluation.split import halves
from rmetric.evaluation.studies import in_parallel, load_study
from rmetric.reporting.table import Cell, Column, Table, to_screen, write
from studies.compare.pairs import first_step, highest_of, pairs_of, shifted

NEAR = 5
"""Steps within which a step counts as found."""
SHIFTS = 1.0, 2.0, 3.0
"""Deviations of the noise by which the training loss of a healthy run is raised from its middle on."""
COLUMNS = (
    Column("pairs", "Pairs"), Column("count", "Number"), Column("differ", "With a difference"),
    Column("exact", "At the onset"), Column("near", f"Within {NEAR} steps"), Column("early", "Before the onset"),
    Column("late", "Median steps after it", 1),
)  # fmt: skip


def parser() -> Parser:
    p = Parser("Score the comparison of two runs on pairs whose onset is known.")
    p.add_argument("--data", type=Path, default=Path("data/real_runs.parquet"), help="data set, or folder of logs")
    p.add_argument("--half", choices=("fit", "score", "all"), default="score", help="half of the seeds")
    p.add_argument(
        "--fit", action="store_true", help="print the highest sums, jumps and shifts of healthy pairs, and stop"
    )
    p.add_argument("--out", type=Path, default=Path("results/compare"), help="folder for the table")
    p.add_jobs()
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    """Load, compare all pairs, print and write the table."""
    args = parser().parse_args(argv)
    study = load_study(args.data, args.jobs)
    chosen = np.ones(len(study.runs), bool) if args.half == "all" else getattr(halves(study.runs), args.half)
    counted = [truth.counted for truth in study.truths]
    runs = [run for run, use, counts in zip(study.runs, chosen, counted, strict=True) if use and counts]
    failed = {run.name for run, truth in zip(study.runs, study.truths, strict=True) if truth.kind == "failed"}
    pairs = list(pairs_of(runs, failed))
    if args.fit:
        healthy = [pair for pair in pairs if pair.onset is None]
        for name in SIGNALS.keys() - PLANNED:
            highest = zip(*(highest_of(name, pair) for pair in healthy), strict=True)
            sums, jumps, shifts = (", ".join(f"{value:.1f}" for value in sorted(values)[-8:]) for values in highest)
            print(f"{name}: {len(healthy)} pairs, highest sums {sums}; jumps {jumps}; shifts {shifts}")
        return
    pairs += [shifted(pair, by) for by in SHIFTS for pair in pairs if pair.onset is None]
    found = list(in_parallel(first_step, pairs, args.jobs, "comparing", "pair"))
    kinds = dict.fromkeys(pair.kind for pair in pairs)
    rows = [row(kind, [one for pair, one in zip(pairs, found, strict=True) if pair.kind == kind]) for kind in kinds]
    caption = f"First difference of two runs against the onset; {args.data}, {args.half} half. Intervals: exact, 95 %."
    table = Table("compare", "Comparison of two runs", caption, COLUMNS, rows)
    write(table, output_folder(args.out))
    print(to_screen(table))


def row(kind: str, found: Sequence[tuple[int | None, int | None]]) -> dict[str, Cell]:
    """One line of the table; errors are steps from the onset to the first difference."""
    differ = [(onset, step) for onset, step in found if step is not None]
    cells: dict[str, Cell] = {"pairs": kind, "count": len(found), "differ": Score.share(len(differ), len(found))}
    errors = np.array([step - onset for onset, step in differ if onset is not None], dtype=float)
    if all(onset is None for onset, _ in found):
        return cells
    return cells | {
        "exact": Score.share(int((errors == 0).sum()), len(found)),
        "near": Score.share(int((np.abs(errors) <= NEAR).sum()), len(found)),
        "early": Score.share(int((errors < 0).sum()), len(found)),
        "late": float(np.median(errors)) if len(errors) else None,
    }


if __name__ == "__main__":
    sys.exit(main())
