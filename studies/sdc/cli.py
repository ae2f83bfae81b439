"""The suite ``sdc`` of the case study: flip single bits, see what comes of it, who notices, where it was, mend it.

    python run_case_study.py --suite sdc                                # three minutes on two cores
    python run_case_study.py --suite sdc --injections 12 --window 10    # a tiny one
    python run_case_study.py --suite sdc --campaign results/case_study/sdc/campaign.json

What it does and what comes out: docs/sdc.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rmetric.cli import Parser, as_typed, output_folder, real_training, whole_number
from rmetric.errors import UserError
from rmetric.progress import progress_bar
from studies.sdc.plan import DTYPES, STAGES, Settings

if TYPE_CHECKING:
    from studies.sdc.campaign import Campaign

DRAW_OPTIONS = ("injections", "onsets", "stages", "bits")
CAMPAIGN_OPTIONS = (*DRAW_OPTIONS, "seed", "model", "dtype", "window")
"""Options that a campaign from a file has already decided."""


def parser() -> Parser:
    p = Parser(
        "Flip single bits in a real training run and see what comes of it.", prog="run_case_study.py --suite sdc"
    )
    count = whole_number(1)
    p.add_argument("--campaign", type=Path, metavar="FILE", help="do the injections of this file again")
    p.add_argument("--injections", type=count, metavar="N", help="flips to draw (default: 240)")
    p.add_argument(
        "--seed", type=whole_number(0), metavar="N", help="seed of weights, batches and the draw (default: 0)"
    )
    p.add_argument(
        "--model", metavar="NAME", help="tiny-llama, tiny-mistral, tiny-moe, tiny-qwen (default: tiny-llama)"
    )
    p.add_argument(
        "--dtype", choices=DTYPES, help="number format of the forward and backward passes (default: float32)"
    )
    p.add_argument("--window", type=whole_number(5), metavar="STEPS", help="steps watched after a flip (default: 60)")
    onsets = "faulty steps (default: 81 101 121 141)"
    p.add_argument("--onsets", type=whole_number(2), nargs="+", metavar="STEP", help=onsets)
    p.add_argument("--stages", choices=STAGES, nargs="+", help="where flips happen (default: a mixture of all)")
    bits = "bits to flip, 0 is the lowest of the mantissa (default: a mixture with many top bits of the exponent)"
    p.add_argument("--bits", type=whole_number(0), nargs="+", metavar="BIT", help=bits)
    p.add_argument("--no-repair", action="store_true", help="do not do every harmful flip again with a repair policy")
    healthy = "steps of a healthy run with the repair policy; 0: none (default: 1000)"
    p.add_argument("--healthy-steps", type=whole_number(0), default=1000, metavar="N", help=healthy)
    p.add_jobs()
    p.add_argument("--out", type=Path, default=Path("results/case_study/sdc"), help="folder for logs and results")
    return p


def main(argv: Sequence[str]) -> None:
    """Parse, draw or load, inject, write, show."""
    args = parser().parse_args(argv)
    given = {name: value for name in CAMPAIGN_OPTIONS if (value := getattr(args, name)) is not None}
    if args.campaign is not None and given:
        raise UserError(f"--campaign decides {', '.join(given)} already; leave --{next(iter(given))} out")
    with real_training():
        from studies.sdc.run import repair_policy, run_campaign
        from studies.sdc.twin import healthy_run
    from rmetric.reporting.table import to_terminal
    from studies.sdc.report import write_results

    campaign = _campaign(args.campaign, given)
    out = output_folder(args.out)
    logs = output_folder(out / "logs")
    policy = None if args.no_repair else repair_policy
    total = len(campaign.injections)
    print(f"{total:,} injections into {campaign.settings.model}, {args.jobs} processes", flush=True)
    with progress_bar(total=total, unit="flip") as bar:
        result = run_campaign(
            campaign,
            logs,
            jobs=args.jobs,
            policy=policy,
            on_progress=lambda what, number: bar.update(number) if what == "injection" else None,
        )
    healthy = None
    if policy and args.healthy_steps:
        with progress_bar(total=2 * args.healthy_steps, unit="step", desc="healthy") as bar:
            healthy = healthy_run(campaign.settings, args.healthy_steps, policy, bar.update)
    command = as_typed("python run_case_study.py --suite sdc", argv)
    for table in write_results(result, healthy, out, command):
        print("\n" + to_terminal(table))
    print(f"campaign, tables, map, outcomes.csv, summary.json in {out}/, logs in {logs}/")
    print(f"the flips took {result.seconds:.0f} s")


def _campaign(path: Path | None, given: dict[str, object]) -> Campaign:
    from studies.sdc.campaign import Campaign

    if path is not None:
        return Campaign.load(path)
    drawn = {name: given.pop(name) for name in DRAW_OPTIONS if name in given}
    settings = Settings(**given)  # type: ignore[arg-type]
    return Campaign.drawn(settings, seed=settings.seed, **drawn)  # type: ignore[arg-type]
