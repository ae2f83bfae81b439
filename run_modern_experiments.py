"""Run the study of 720 runs, simulated or trained, and write one JSONL log for each run.

    python run_modern_experiments.py                                            # simulated: seconds, 158 MB
    python run_modern_experiments.py --smoke --out logs_SMOKE                   # 36 simulated runs
    python run_modern_experiments.py --as-published --out logs_AS_PUBLISHED     # under the author's conditions
    python run_modern_experiments.py --repetitions 800 --engine dask --logs-format parquet --out logs_BIG  # 72,000 runs
    python run_modern_experiments.py --backend torch --out logs_REAL --jobs 2   # 720 real runs of tiny models: an hour
    python run_modern_experiments.py --backend torch --smoke --out logs_REAL_SMOKE

A simulated run has 5,000 steps and a record every 10, a real run 720 steps and a record each. Format of the logs:
logs_FULL_METRIC/README.md. Real runs need pip install -e '.[live]'; their plan: docs/real_study.md.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rmetric.architectures import ARCHITECTURES
from rmetric.cli import Parser, named_once, output_folder, real_training, script, whole_number
from rmetric.engines import engine, start_ahead
from rmetric.errors import UserError
from rmetric.files import DEFAULT_LOGS

if TYPE_CHECKING:
    from studies.runner import Backend, Plan

REAL_LOGS = Path("logs_REAL")


def parser() -> Parser:
    """Command line of this script."""
    p = Parser("Run the paper's study: 3 architectures x (8 faults x 3 severities x 8 runs + 48 controls) = 720 runs.")
    p.add_argument("--backend", choices=("simulation", "torch"), default="simulation", help="torch: train tiny models")
    p.add_argument("--out", type=Path, help=f"folder for the logs (default: {DEFAULT_LOGS}; torch: {REAL_LOGS})")
    p.add_engine()
    p.add_argument("--logs-format", choices=("jsonl", "parquet"), default="jsonl", help="parquet: 60 runs per file")
    p.add_argument("--seed", type=whole_number(0), default=0, metavar="N", help="seed of the study")
    count = {"type": whole_number(1), "metavar": "N"}
    p.add_argument("--repetitions", **count, help="runs of each fault and severity (default: 8)")
    p.add_argument("--steps", **count, help="training steps of each run (default: 5000; torch: 720)")
    p.add_argument("--log-every", **count, help="steps between records (default: 10; as published: 100; torch: 1)")
    p.add_argument("--architectures", nargs="+", default=list(ARCHITECTURES), metavar="NAME", help="architectures")
    p.add_argument("--faults", nargs="+", default=[], metavar="NAME", help="faults instead of all; combine with +")
    p.add_argument("--smoke", action="store_true", help="36 runs instead of 720 (torch: 24 runs of 240 steps)")
    conditions = "the author's conditions: faults at step 2500, crashes within 20 steps (docs/FINDINGS.md)"
    p.add_argument("--as-published", action="store_true", help=conditions)
    p.add_argument("--transfer", action="store_true", help="torch: 132 runs of models and optimizers not in the 720")
    p.add_argument("--device", metavar="NAME", help="torch: cpu, cuda, or auto (default)")
    p.add_plugin("faults")
    existing = p.add_mutually_exclusive_group()
    existing.add_argument("--resume", action="store_true", help="go on with the study in --out")
    existing.add_argument("--overwrite", action="store_true", help="replace the study in --out")
    return p


def chosen_plan(args: Namespace) -> tuple[Plan, Backend]:
    """Plan of the study, and the backend that runs it."""
    from studies.paper.plan import CONTROLS_PER_REPETITION, PublishedPlan, StudyPlan
    from studies.paper.run import SIMULATIONS

    names = ("seed", "repetitions", "steps", *(["log_every"] if args.backend == "simulation" else []))
    settings = {name: value for name in names if (value := getattr(args, name)) is not None}
    if args.repetitions is not None and not args.smoke:
        settings["controls"] = args.repetitions * CONTROLS_PER_REPETITION
    only = named_once(args.architectures), named_once(args.faults)
    if args.backend == "simulation":
        if args.transfer or args.device:
            raise UserError("--transfer and --device are for real runs; add --backend torch")
        plan = PublishedPlan if args.as_published else StudyPlan
        return (plan.smoke if args.smoke else plan)(**settings).only(*only), SIMULATIONS[args.logs_format]
    with real_training():
        from studies.real_runs.plan import RealStudyPlan
        from studies.real_runs.run import TORCH  # torch, seconds to import
    if args.engine != "local" or args.logs_format != "jsonl":
        raise UserError("real runs are trained here, a log each; leave --engine and --logs-format out")
    if args.as_published:
        raise UserError("the author's conditions are those of a simulation; leave --backend torch out")
    if args.transfer and args.architectures != list(ARCHITECTURES):
        raise UserError("--transfer has models of its own, of no architecture; leave --architectures out")
    if args.log_every not in (None, 1):
        raise UserError("a real run writes a record every step; leave --log-every out")
    trained = RealStudyPlan.smoke if args.smoke else RealStudyPlan.transfer if args.transfer else RealStudyPlan
    return trained(**settings, device=args.device or "auto").only(*only), TORCH


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    if args.backend == "simulation" and args.engine == "local" and args.jobs > 1:
        start_ahead("studies.paper.run")  # which this process imports in the same quarter of a second
    from rmetric.faults import FAULTS, check_simulated, fault_parts
    from studies.runner import run_study

    for architecture in args.architectures:
        ARCHITECTURES[architecture]
    for part in (part for fault in args.faults for part in fault_parts(fault)):
        check_simulated(part) if args.backend == "simulation" else FAULTS[part]
    plan, backend = chosen_plan(args)
    with engine(args.engine, args.jobs, args.address):
        folder = output_folder(args.out or (DEFAULT_LOGS if args.backend == "simulation" else REAL_LOGS))
        result = run_study(
            plan, folder, backend=backend, jobs=args.jobs, plugins=args.plugin,
            resume=args.resume, overwrite=args.overwrite,
        )  # fmt: skip
    megabytes = sum(item.bytes for item in result.finished) / 1e6
    print(result.summary)
    print(f"  {sum(item.records for item in result.finished):,} records, {megabytes:.1f} MB, {result.seconds:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
