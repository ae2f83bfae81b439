"""The 720-run study: simulate or train, inject faults, write one JSONL log a run.

python run_modern_experiments.py                       # 720 simulated runs into logs_FULL_METRIC/
python run_modern_experiments.py --smoke --out logs_SMOKE
python run_modern_experiments.py --backend torch --out logs_REAL --jobs 2   # 720 real runs of tiny models
python run_modern_experiments.py --backend torch --smoke --out logs_REAL_SMOKE
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rmetric.architectures import ARCHITECTURES
from rmetric.cli import DEFAULT_LOGS, Parser, output_folder, script, whole_number
from rmetric.errors import UserError
from rmetric.faults import FAULTS
from rmetric.simulation import MAX_STEPS
from studies.runner import CONTROLS_PER_REPETITION, SIMULATION, Backend, Plan, StudyPlan, run_study

REAL_LOGS = Path("logs_REAL")


def parser() -> Parser:
    """Command line of this script."""
    p = Parser(
        "Run the study of the paper, simulated or trained: 3 architectures x (8 faults x 3 severities x 8 + 48)."
    )
    p.add_argument("--backend", choices=("simulation", "torch"), default="simulation", help="torch: train tiny models")
    p.add_argument("--out", type=Path, help=f"folder for logs and manifest.json ({DEFAULT_LOGS}; torch: {REAL_LOGS})")
    p.add_jobs()
    p.add_argument("--seed", type=whole_number(0), default=0, help="seed of the study")
    p.add_argument("--repetitions", type=whole_number(1), help="runs of each fault and severity (default: 8)")
    p.add_argument("--steps", type=whole_number(1, MAX_STEPS), help="steps a run (5000; torch: 720, 240 with --smoke)")
    p.add_argument("--log-every", type=whole_number(1), help="steps between records (10; the authors: 100; torch: 1)")
    p.add_argument("--architectures", nargs="+", default=list(ARCHITECTURES), help="architectures of the study")
    p.add_argument("--faults", nargs="+", default=[], help="faults instead of the matrix; combine with +")
    size = p.add_mutually_exclusive_group()
    size.add_argument(
        "--smoke", action="store_true", help="36 runs: each fault once, 12 controls (torch: 24 short runs)"
    )
    p.add_argument(
        "--transfer", action="store_true", help="torch: 132 runs of a model, optimizers, a fault not seen yet"
    )
    p.add_argument("--device", default="auto", help="torch: cpu, cuda, or auto")
    p.add_plugin("faults")
    existing = p.add_mutually_exclusive_group()
    existing.add_argument("--resume", action="store_true", help="go on with the study in --out")
    existing.add_argument("--overwrite", action="store_true", help="replace the study in --out")
    return p


def chosen_plan(args: Namespace) -> tuple[Plan, Backend]:
    """What is to be run, and how."""
    settings = {name: getattr(args, name) for name in ("seed", "repetitions", "steps")}
    settings = {name: value for name, value in settings.items() if value is not None}
    if args.repetitions is not None and not args.smoke:
        settings["controls"] = args.repetitions * CONTROLS_PER_REPETITION
    only = tuple(dict.fromkeys(args.architectures)), tuple(dict.fromkeys(args.faults))
    if args.backend == "simulation":
        if args.transfer:
            raise UserError("--transfer is a set of real runs; add --backend torch")
        simulated = StudyPlan.smoke if args.smoke else StudyPlan
        return simulated(**settings, log_every=args.log_every or 10).only(*only), SIMULATION
    from studies.real_runs import TORCH, RealStudyPlan  # torch, seconds to import

    if args.log_every not in (None, 1):
        raise UserError("a real run writes a record every step; leave --log-every out")
    trained = RealStudyPlan.smoke if args.smoke else RealStudyPlan.transfer if args.transfer else RealStudyPlan
    return trained(**settings, device=args.device).only(*only), TORCH


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    for architecture in args.architectures:
        ARCHITECTURES[architecture]
    for fault in args.faults:
        for part in fault.split("+"):
            FAULTS[part.strip()]
    plan, backend = chosen_plan(args)
    result = run_study(
        plan,
        output_folder(args.out or (DEFAULT_LOGS if backend is SIMULATION else REAL_LOGS)),
        backend=backend,
        jobs=args.jobs,
        resume=args.resume,
        overwrite=args.overwrite,
        plugins=args.plugin,
    )
    counts = Counter(item.outcome for item in result.finished)
    megabytes = sum(item.bytes for item in result.finished) / 1e6
    print(f"{result.runs} runs ({result.made} made now, {result.runs - result.made} found finished) in {result.folder}")
    print(f"  outcomes: {', '.join(f'{number} {kind}' for kind, number in sorted(counts.items()))}")
    print(f"  {sum(item.records for item in result.finished):,} records, {megabytes:.1f} MB, {result.seconds:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
