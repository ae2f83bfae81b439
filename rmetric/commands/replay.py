"""``rmetric replay LOG…``: what ``replay_and_analyze_logs.py`` does, too."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rmetric.cli import Parser, output_folder, positive_number
from rmetric.commands.logs import add_format, reading
from rmetric.errors import UserError
from rmetric.importers import collect_logs
from rmetric.replay import PRESET_NAMES, ReplayOptions, ReplaySettings, parse_weights
from rmetric.replay.batch import replay_logs
from rmetric.replay.overview import refuse_others, write_overview

DESCRIPTION = "Recompute signals, R and alerts from existing logs; write a plot, a CSV and a summary for each."
EPILOG = """\
examples:
  rmetric replay run.jsonl
  rmetric replay metrics.csv --map training_loss=loss,step=iteration --no-plot
"""


def add_parser(commands: Any, summary: str) -> None:
    p = commands.add_parser("replay", help=summary, description=DESCRIPTION, epilog=EPILOG, examples=True)
    add_arguments(p)
    p.set_defaults(run=run)


def weights(text: str) -> tuple[float, float, float]:
    """Argument type: the weights of λ, σ² and ΔL."""
    try:
        return parse_weights(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_arguments(p: Parser) -> None:
    p.add_argument("logs", nargs="*", metavar="LOG_OR_FOLDER", help="logs, or folders of them; none: logs_FULL_METRIC")
    p.add_argument("--out", type=Path, default=Path("results/replay"), help="folder for the results")
    p.add_argument("--preset", default="paper", metavar="NAME", help=f"setting of R: {', '.join(PRESET_NAMES)}")
    p.add_argument("--weights", type=weights, metavar="A,B,C", help="weights of λ, σ² and ΔL instead of the preset's")
    p.add_argument("--threshold", type=positive_number, metavar="R", help="alert above this R instead of the preset's")
    add_format(p)
    p.add_argument("--strict", action="store_true", help="damage in a log is an error, not a warning")
    p.add_argument("--no-plot", action="store_true", help="write no PNG")
    p.add_jobs()


def run(args: argparse.Namespace) -> int:
    """Replay each log, write, print the table over all."""
    settings = ReplaySettings(preset=args.preset, weights=args.weights, threshold=args.threshold)
    how = reading(args)
    options = ReplayOptions(settings=settings, log_format=how["format"], mapping=how["mapping"])
    logs, note = collect_logs(args.logs)
    out = output_folder(args.out)
    refuse_others(out)
    if note:
        print(note)
    replays = replay_logs(logs, out, options, jobs=args.jobs, plot=not args.no_plot, strict=args.strict)
    text = write_overview(replays, out)
    if not any(replay.records for replay in replays):
        if len(replays) > 1:
            raise UserError(f"none of the {len(replays)} logs could be used; see the errors above")
        return 2  # of a single log the error has been printed
    print(text)
    used = sum(not replay.unusable for replay in replays)
    others = f", {len(replays) - used} could not be used" if used < len(replays) else ""
    print(f"{used} log{'s' if used != 1 else ''} replayed{others}; the results are in {out}")
    return 0
