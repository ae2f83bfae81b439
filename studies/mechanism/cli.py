"""``python run_case_study.py --suite mechanism``: train, watch the mechanism, and say which monitor fires for what."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmetric.cli import Parser, as_typed, output_folder, real_training, whole_number

if TYPE_CHECKING:
    from studies.mechanism.plan import MechanismPlan

OUT = Path("results/case_study/mechanism")
LOGS = "logs"
CPU_STEPS, GPU_STEPS = 800, 2000


def parser() -> Parser:
    p = Parser(
        "Break tiny models in ways whose mechanism is known, each at several strengths, and see which monitor fires.",
        prog="run_case_study.py --suite mechanism",
    )
    p.add_argument("--smoke", action="store_true", help="ten short runs: seconds")
    steps = f"training steps a run (default: {CPU_STEPS}; on a GPU {GPU_STEPS:,}; --smoke: 100)"
    p.add_argument("--steps", type=whole_number(48), metavar="N", help=steps)
    p.add_argument("--seeds", type=whole_number(2), metavar="N", help="seeds of each group (default: 3; --smoke: 2)")
    p.add_argument(
        "--seed", type=whole_number(0), metavar="N", help="seed from which all seeds and onsets are drawn (default: 1)"
    )
    stride = "steps between measurements of the mechanism (default: 10; --smoke: 2)"
    p.add_argument("--stride", type=whole_number(1), metavar="STEPS", help=stride)
    p.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1, ... (default: auto, a GPU if there is one)")
    p.add_argument("--jobs", type=whole_number(1), metavar="N", help="processes (default: one a core; on a GPU one)")
    p.add_argument("--out", type=Path, default=OUT, help="folder for the results; logs in its folder logs")
    existing = p.add_mutually_exclusive_group()
    existing.add_argument("--resume", action="store_true", help="go on with the study in --out")
    existing.add_argument("--overwrite", action="store_true", help="replace the study in --out")
    return p


def main(argv: Sequence[str]) -> None:
    """Parse, train, score, write, show."""
    args = parser().parse_args(argv)
    out = output_folder(args.out)
    with real_training():
        from studies.mechanism.run import WATCHED
        from studies.processes import default_jobs
    from studies.runner import run_study

    began = time.perf_counter()
    plan = chosen_plan(args)
    jobs = args.jobs or default_jobs(plan.device)
    specs = plan.specs()
    print(f"training {len(specs)} runs of up to {plan.steps:,} steps in {jobs} process{'es' if jobs > 1 else ''}: "
          f"{len(plan.groups)} groups, {plan.seeds} seeds", flush=True)  # fmt: skip
    logs = output_folder(out / LOGS)
    run_study(plan, logs, backend=WATCHED, jobs=jobs, resume=args.resume, overwrite=args.overwrite)
    report(logs, out, as_typed("python run_case_study.py --suite mechanism", argv), jobs=jobs)
    print(f"logs, tables and figures in {out}/; {time.perf_counter() - began:.0f} s in all")


def chosen_plan(args: Namespace) -> MechanismPlan:
    """The plan that the options ask for; the length depends on the device."""
    from studies.mechanism.plan import MechanismPlan
    from studies.processes import device_of

    given: dict[str, Any] = {name: getattr(args, name) for name in ("steps", "seeds", "seed", "stride", "device")}
    given = {name: value for name, value in given.items() if value is not None}
    if args.smoke:
        return MechanismPlan.smoke(**given)
    on_gpu = device_of(given.get("device", "auto")).type != "cpu"
    return MechanismPlan(**{"steps": GPU_STEPS if on_gpu else CPU_STEPS, **given})


def report(logs: Path, out: Path, command: str, *, jobs: int) -> None:
    """Score the logs, write what is made of them, show the tables."""
    from rmetric.evaluation.studies import load_study
    from rmetric.reporting.table import to_terminal
    from studies.mechanism.findings import MechanismResults
    from studies.mechanism.report import write_results

    results = MechanismResults.of(load_study(logs, jobs), jobs=jobs)
    for table in write_results(results, out, command):
        print("\n" + to_terminal(table))
