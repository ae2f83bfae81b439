"""The 720-run study: simulate, inject faults, write one JSONL log a run.

python run_modern_experiments.py                       # 720 runs into logs_FULL_METRIC/
python run_modern_experiments.py --smoke --out logs_SMOKE
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rmetric.architectures import ARCHITECTURES
from rmetric.cli import DEFAULT_LOGS, Parser, output_folder, script, whole_number
from rmetric.faults import FAULTS
from rmetric.simulation import MAX_STEPS
from rmetric.study import CONTROLS_PER_REPETITION, StudyPlan, run_study


def parser() -> Parser:
    """Command line of this script."""
    p = Parser(
        "Run the study of the paper in simulation: 3 architectures x (8 faults x 3 severities x 8 + 48 controls)."
    )
    p.add_argument("--out", type=Path, default=DEFAULT_LOGS, help="folder for the logs and manifest.json")
    p.add_jobs()
    p.add_argument("--seed", type=whole_number(0), default=0, help="seed of the study")
    p.add_argument("--repetitions", type=whole_number(1), help="runs of each fault and severity (default: 8)")
    p.add_argument("--steps", type=whole_number(1, MAX_STEPS), default=5000, help="training steps a run")
    p.add_argument("--log-every", type=whole_number(1), default=10, help="steps between records (the authors: 100)")
    p.add_argument("--architectures", nargs="+", default=list(ARCHITECTURES), help="architectures of the study")
    p.add_argument("--faults", nargs="+", default=[], help="faults instead of the matrix; combine with +")
    p.add_argument("--smoke", action="store_true", help="36 runs: each fault once, medium severity, 12 controls")
    p.add_plugin("faults")
    existing = p.add_mutually_exclusive_group()
    existing.add_argument("--resume", action="store_true", help="go on with the study in --out")
    existing.add_argument("--overwrite", action="store_true", help="replace the study in --out")
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    for architecture in args.architectures:
        ARCHITECTURES[architecture]
    for fault in args.faults:
        for part in fault.split("+"):
            FAULTS[part.strip()]
    common = {
        "seed": args.seed,
        "steps": args.steps,
        "log_every": args.log_every,
        "architectures": tuple(dict.fromkeys(args.architectures)),
        "faults": tuple(dict.fromkeys(args.faults)),
    }
    if args.repetitions is not None:
        common["repetitions"] = args.repetitions
    if args.smoke:
        plan = StudyPlan.smoke(**common)
    else:
        repetitions = args.repetitions or 8
        plan = StudyPlan(**common, controls=repetitions * CONTROLS_PER_REPETITION)
    result = run_study(
        plan, output_folder(args.out), jobs=args.jobs, resume=args.resume, overwrite=args.overwrite, plugins=args.plugin
    )
    counts = Counter(item.outcome for item in result.finished)
    megabytes = sum(item.bytes for item in result.finished) / 1e6
    print(f"{result.runs} runs ({result.made} made now, {result.runs - result.made} found finished) in {result.folder}")
    print(f"  outcomes: {', '.join(f'{number} {kind}' for kind, number in sorted(counts.items()))}")
    print(f"  {sum(item.records for item in result.finished):,} records, {megabytes:.1f} MB, {result.seconds:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
