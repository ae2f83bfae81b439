"""Simulated against real: tables and a figure, from the half of the real runs that nothing was fitted to.

python -m studies.calibration.compare --simulated logs_FULL_METRIC --real data/real_runs.parquet
python -m studies.calibration.compare --simulated logs_SMOKE --real logs_REAL --no-detectors --out results/smoke
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rmetric.cli import Parser, as_typed, output_folder, script
from rmetric.detectors import DETECTORS
from rmetric.files import DEFAULT_LOGS


def parser() -> Parser:
    p = Parser("Compare simulated runs with the score half (even repetitions) of real ones.")
    p.add_argument("--simulated", type=Path, default=DEFAULT_LOGS, help="folder of simulated logs, or a data set")
    p.add_argument("--real", type=Path, required=True, help="folder of real logs, or a data set")
    p.add_argument("--out", type=Path, default=Path("results/simulated_vs_real"), help="folder for tables and figure")
    p.add_argument("--cache", type=Path, help="folder for the detectors' scores (default: OUT/cache)")
    p.add_argument("--detectors", nargs="+", default=[], help="detectors to rank (default: all that need no extra)")
    p.add_argument("--no-detectors", action="store_true", help="rank none: noise and faults alone, which is quick")
    p.add_bootstrap(200)
    p.add_plugin("detectors")
    p.add_jobs()
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    DETECTORS.check(args.detectors)
    out = output_folder(args.out)

    from rmetric.evaluation.evaluator import Evaluator  # after the arguments are known to be good: --help is instant
    from rmetric.evaluation.studies import load_study
    from rmetric.reporting.style import write_figures
    from rmetric.reporting.table import to_terminal, write
    from studies.calibration import figure as simulated_vs_real
    from studies.calibration.comparison import compare, tables, with_detectors

    studies = {backend: load_study(getattr(args, backend), args.jobs) for backend in ("simulated", "real")}
    for study in studies.values():
        study.warn()
    comparison = compare(studies["simulated"].runs, studies["real"].runs)
    if not args.no_detectors:
        cache, names = args.cache or out / "cache", list(dict.fromkeys(args.detectors)) or None
        options = {"jobs": args.jobs, "plugins": args.plugin, "draws": args.bootstrap}
        both = (Evaluator.of(study, names, cache=cache / backend, **options) for backend, study in studies.items())
        comparison = with_detectors(comparison, *both)
    for table in tables(comparison):
        write(table, out)
        print(to_terminal(table))
    drawing = simulated_vs_real.draw(comparison)
    write_figures([drawing], as_typed("python -m studies.calibration.compare", argv), out)
    print(f"tables and {drawing.name} written to {out}/")


if __name__ == "__main__":
    sys.exit(main())
