"""Draw Figures 0 to 9 from logs, as PNG and PDF, with captions.md that says what each of them shows.

    python generate_all_figures.py                                  # logs_FULL_METRIC/ into results/figures/
    python generate_all_figures.py --logs logs_FULL_METRIC data/real_runs.parquet    # both studies: minutes
    python generate_all_figures.py --logs logs_SMOKE --out results_smoke/figures --figures 2 3
    python generate_all_figures.py --logs logs_BIG --detectors r_metric loss_spike grad_norm

Takes the scores of generate_paper_tables.py (results/tables/cache/) where there are any.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rmetric.cli import Parser, as_typed, output_folder, script
from rmetric.detectors import DETECTORS
from rmetric.engines import engine

NUMBERS = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
"""6, 7 and 9 need a real study, 8 a simulated one as well; without --figures, all that there can be."""


def parser() -> Parser:
    """Command line of this script."""
    p = Parser("Draw the paper's figures from logs, and of a real study those of risk and diagnosis.")
    p.add_argument("--out", type=Path, default=Path("results/figures"), help="folder for the figures")
    p.add_argument("--figures", nargs="+", choices=NUMBERS, default=[], metavar="N", help="figures by number")
    p.add_argument("--run", metavar="NAME", help="log of Figure 2 (default: the typical failing run)")
    p.add_argument(
        "--cache", type=Path, help="folder of scores (default: OUT/../tables/cache if it exists, or OUT/cache)"
    )
    p.add_evaluation()
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    DETECTORS.check(args.detectors)
    command = as_typed("python generate_all_figures.py", argv)
    out = output_folder(args.out)
    from studies.paper.results import evaluated, write_figures  # after the arguments: --help is instant

    with engine(args.engine, args.jobs, args.address):
        tables_cache = out.parent / "tables" / "cache"
        cache = args.cache or (tables_cache if tables_cache.is_dir() else out / "cache")
        write_figures(evaluated(args, out.parent, cache), out, command, args.figures, args.run or "")


if __name__ == "__main__":
    sys.exit(main())
