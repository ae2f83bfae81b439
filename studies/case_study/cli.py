"""Command line of the case study, and its words on the screen.

What it does and what comes out: docs/case_study.md.
"""

from __future__ import annotations

import inspect
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from rmetric.cli import Parser, as_typed, output_folder, positive_number, real_training, whole_number
from rmetric.faults import FAULTS
from rmetric.progress import progress_bar

if TYPE_CHECKING:
    from studies.case_study.plan import CaseStudyPlan


def opening(plan: CaseStudyPlan, jobs: int) -> str:
    """Description of the work to come, in a line or two."""
    text = plan.dataset or f"the source of the standard library of Python {platform.python_version()}"
    onset = plan.first_disturbed
    many = f"{len(plan.faults)} runs and their twin" if len(plan.faults) != 1 else "a run and its twin"
    return (
        f"training {plan.model} on {text}\n{onset - 1:,} healthy steps, then {many} from step {onset:,} to "
        f"{plan.steps:,}, in {jobs} process{'es' if jobs > 1 else ''}"
    )


@contextmanager
def progress_of(plan: CaseStudyPlan, *, begin: Callable[[], None]) -> Iterator[Callable[[str, int], None]]:
    """A progress bar over the steps of all runs; gives what is to be told of the steps that a run has done.

    ``begin`` is called before the first step counts: what is wrong with a plan is told before training.
    """
    forked = plan.steps - plan.first_disturbed + 1
    total = plan.first_disturbed - 1 + (1 + len(plan.faults)) * forked
    with progress_bar(total=total, unit="step", smoothing=0.1) as bar:
        begun = False

        def tell(name: str, steps: int) -> None:
            nonlocal begun
            if not begun:
                begun = True
                begin()
            bar.set_description(name[-24:], refresh=False)
            bar.update(steps)

        yield tell


def fault_list() -> str:
    """All faults with their parameters and the defaults of these, as ``--faults`` takes them."""
    lines = []
    for name, fault in FAULTS.items():
        known = ",".join(f"{item.name}={item.default}" for item in fields(fault) if item.default is not MISSING)
        lines += [f"{name:24} {(inspect.getdoc(fault) or name).splitlines()[0]}", f"{'':24} {known}"]
    return "\n".join(lines)


PLANNED = (
    "model", "dataset", "faults", "onset", "steps", "seed", "rows", "length", "workers", "learning_rate", "eval_every",
    "judge_every", "device", "lora",
)  # fmt: skip
"""Options that are fields of ``CaseStudyPlan``, which has their defaults; to read them there would import torch."""
MODEL = (
    "tiny-llama, tiny-mistral, tiny-moe, tiny-qwen; smollm2-135m; a folder or a .gguf file; a name of the Hugging Face "
    "Hub; random:NAME for its shape with random weights (default: tiny-llama)"
)
FAULT = (
    "NAME[@SEVERITY][:KEY=VALUE,...], such as LR_SPIKE:factor=30; NONE is a control (default: LR_SPIKE, a flipped bit "
    "in a weight, recurring flipped bits in gradients, corrupted labels, GRADIENT_EXPLOSION, NONE)"
)
ONSET = "first disturbed step (default: drawn from the seed, in the middle half of the run)"


def parser() -> Parser:
    p = Parser(
        "Train a real model, break it on purpose in several ways, and see who warned, and when (--suite faults, which "
        "can be left out). --suite mechanism and --suite sdc are other studies, with options of their own: add --help "
        "to see them."
    )
    count, onset, tokens = whole_number(1), whole_number(2), whole_number(2)
    p.add_argument("--model", metavar="NAME", help=MODEL)
    p.add_argument("--dataset", metavar="NAME", help="text or JSONL file, name on the Hub (default: Python's source)")
    p.add_argument("--faults", nargs="+", metavar="FAULT", help=FAULT)
    p.add_argument("--fault-step", dest="onset", type=onset, metavar="STEP", help=ONSET)
    p.add_argument("--steps", type=whole_number(4), metavar="N", help="training steps a run (default: 600)")
    p.add_argument(
        "--seed", type=whole_number(0), metavar="N", help="seed of weights, batches, faults and onset (default: 0)"
    )
    rows = "sequences a step (default: 16; not tiny: 4)"
    p.add_argument("--batch", dest="rows", type=count, metavar="ROWS", help=rows)
    p.add_argument("--length", type=tokens, metavar="TOKENS", help="tokens a sequence (default: 64; not tiny: 256)")
    p.add_argument("--workers", type=count, metavar="N", help="equal parts of a batch, which make σ² (default: 4)")
    rate = "learning rate after the warm-up (default: 0.001; not tiny: 5e-05)"
    p.add_argument("--lr", dest="learning_rate", type=positive_number, metavar="RATE", help=rate)
    p.add_argument("--eval-every", type=count, metavar="STEPS", help="steps between validation losses (default: 20)")
    judged = "steps between the held-out losses that decide whether, and from when, a run has failed (default: 5)"
    p.add_argument("--judge-every", type=count, metavar="STEPS", help=judged)
    p.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1, ... (default: auto, a GPU if there is one)")
    p.add_argument(
        "--lora",
        choices=("auto", "on", "off"),
        help="train low-rank adapters only; auto: if the whole model does not fit in memory (default: auto)",
    )
    p.add_argument("--out", type=Path, default=Path("results/case_study"), help="folder for logs and results")
    p.add_argument("--jobs", type=count, metavar="N", help="processes (default: one a core; on a GPU one)")
    p.add_plugin("faults or detectors")
    p.add_argument("--list-faults", action="store_true", help="list the faults with their parameters and exit")
    return p


def main(argv: Sequence[str]) -> None:
    """Parse, train, judge, score, write, show."""
    args = parser().parse_args(argv)
    if args.list_faults:
        print(fault_list())
        return
    out = output_folder(args.out)
    with real_training():
        from studies.case_study.plan import CaseStudyPlan
        from studies.case_study.run import run_case_study
        from studies.processes import default_jobs
    from rmetric.reporting.table import to_terminal
    from studies.case_study.findings import CaseResults
    from studies.case_study.report import discard_results, trained_on, write_results

    began = time.perf_counter()
    given = {name: value for name in PLANNED if (value := getattr(args, name)) is not None}
    given |= {"faults": tuple(args.faults)} if args.faults else {}
    plan = CaseStudyPlan(**given, plugins=tuple(map(str, args.plugin)))
    jobs = args.jobs or default_jobs(plan.device)

    def begin() -> None:
        tqdm.write(opening(plan, jobs))
        sys.stdout.flush()
        discard_results(out)

    with progress_of(plan, begin=begin) as tell:
        study = run_case_study(plan, out, jobs=jobs, on_progress=tell)
    results = CaseResults.of(study, plugins=args.plugin)
    command = as_typed("python run_case_study.py", argv)
    for table in write_results(results, out, command):
        print("\n" + to_terminal(table))
    print(trained_on(results))
    seconds = time.perf_counter() - began
    print(f"{len(study.logs)} logs, tables, metrics.csv, summary.json and dashboard in {out}/; {seconds:.0f} s in all")
