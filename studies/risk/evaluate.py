"""Judge a risk model on the score half of a study: tables on the screen and in files, figures.

python -m studies.risk.evaluate --logs logs_REAL --out results/risk                       # the shipped model
python -m studies.risk.evaluate --logs logs_REAL --out results/risk --model mine.json
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rmetric.cli import Parser, as_typed, output_folder, script, whole_number


def parser() -> Parser:
    p = Parser("Judge P(failure within k steps), P(heals by itself) and the diagnosis on the score half of a study.")
    p.add_argument("--logs", type=Path, required=True, help="folder of logs, or data set")
    p.add_argument("--out", type=Path, default=Path("results/risk"), help="folder for tables and figures")
    p.add_argument("--model", type=Path, metavar="FILE", help="risk model (default: the shipped one)")
    p.add_bootstrap()
    p.add_argument("--seed", type=whole_number(0), default=0, help="seed of the bootstrap")
    p.add_jobs()
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    """Parse, read, judge, write."""
    args = parser().parse_args(argv)
    out = output_folder(args.out)

    from rmetric.evaluation.studies import load_study  # after the arguments are known to be good: --help is instant
    from rmetric.reporting.style import write_figures
    from rmetric.reporting.table import to_screen
    from rmetric.reporting.table import write as write_table
    from rmetric.risk.model import RiskModel
    from studies.risk.figures import draw_confusion, draw_reliability
    from studies.risk.quality import Judged
    from studies.risk.records import default_detector
    from studies.risk.tables import tables_of

    model = RiskModel.shipped() if args.model is None else RiskModel.load(args.model)
    study = load_study(args.logs, args.jobs)
    study.warn()
    judged = Judged.of(study, model, default_detector(), jobs=args.jobs, draws=args.bootstrap, seed=args.seed)
    for table in tables_of(judged):
        write_table(table, out)
        print(to_screen(table))
    drawings = [draw_reliability(judged, study.note), draw_confusion(judged, study.note)]
    write_figures(drawings, as_typed("python -m studies.risk.evaluate", argv), out)
    print(f"4 tables and {len(drawings)} figures written to {out}/")


if __name__ == "__main__":
    sys.exit(main())
