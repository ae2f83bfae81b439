"""Learn from healthy runs how rare each state's evidence is, and say how often other healthy runs are misjudged.

python -m studies.states.fit --strangers FOLDER                       # writes rmetric/states/states.json: half a minute
python -m studies.states.fit --judge --data data/real_runs_fresh.parquet logs_ZOO      # false states of others
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import binomtest

from rmetric.cli import Parser, script
from rmetric.errors import UserError
from rmetric.files import write_json
from rmetric.states import BUDGET, RECOGNISERS, SHIPPED, Calibration, calibrations
from studies import DATA
from studies.states.population import LOOKS, NOT_HEALTHY, as_a_monitor, controls, population_scores, strangers, tenths

FITTED = ("real_runs", "real_runs_transfer", *(f"real_runs_transfer_{number}" for number in range(2, 6)))
"""Data sets whose healthy runs are fitted, as far as they are there; the others are left for judging."""
KEPT = 0.05
"""Share of the scores that the file keeps: the highest."""


def calibrated(scores: pd.Series) -> Calibration:
    """Calibration of one state, from one score a healthy run."""
    highest = scores.sort_values().iloc[-max(1, math.ceil(KEPT * len(scores))) :]
    return Calibration(runs=len(scores), highest=tuple(highest.round(6).tolist()))


def content(scores: pd.DataFrame) -> dict[str, Any]:
    """Content of ``states.json``."""
    states = {}
    for name in RECOGNISERS:
        of_state = scores[scores["state"] == name]
        fitted = calibrated(of_state["score"])
        states[name] = {
            "runs": fitted.runs,
            "runs_by_source": of_state["source"].value_counts().sort_index().to_dict(),
            "highest_scores": list(fitted.highest),
        }
    left_out = pd.read_csv(NOT_HEALTHY)["state"].value_counts().sort_index().to_dict()
    return {"fitted_by": "python -m studies.states.fit", "looks": LOOKS, "left_out_by_eye": left_out, "states": states}


def fitted_sources(file: Path) -> set[str]:
    """Sources that a ``states.json`` was fitted to."""
    states = json.loads(file.read_text(encoding="utf-8"))["states"]
    return {source for state in states.values() for source in state["runs_by_source"]}


def false_states(scores: pd.DataFrame, *, left_out: bool) -> pd.DataFrame:
    """Healthy runs that are misjudged at some look, by state and source, at the shipped budget.

    Parameters
    ----------
    scores
        From :func:`~studies.states.population.population_scores`.
    left_out
        Judge each source by the runs of the other sources; otherwise all by the shipped calibration.
    """
    rows = []
    for (name, source), own in scores.groupby(["state", "source"], sort=True):
        state = str(name)
        others = scores[(scores["state"] == state) & (scores["source"] != source)]["score"]
        if left_out and others.empty:
            continue
        calibration = calibrated(others) if left_out else calibrations()[state]
        false = sum(calibration.false_alarm_rate(score) <= BUDGET for score in own["score"].tolist())
        bound = binomtest(false, len(own), alternative="less").proportion_ci(0.95).high
        rows.append((state, source, len(own), false, 100.0 * false / len(own), 100.0 * bound))
    columns = ["state", "source", "healthy runs", "false", "false, %", "95 % bound, %"]
    return pd.DataFrame(rows, columns=columns).round(2)


def parser() -> Parser:
    p = Parser("Learn from healthy runs how rare each state's evidence is.")
    p.add_argument("--data", nargs="+", type=Path, metavar="FILE", help="data sets or folders of logs")
    p.add_argument("--strangers", type=Path, metavar="FOLDER", help="strangers' runs")
    p.add_argument("--judge", action="store_true", help="judge by the shipped file instead of writing it")
    p.add_argument(
        "--as-a-monitor", action="store_true", help="look when a monitor does, not after each tenth of a run"
    )
    p.add_argument("--out", type=Path, default=SHIPPED, metavar="FILE", help="where the result goes")
    p.add_jobs()
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    """Score the healthy runs, write the calibration, print the false states."""
    args = parser().parse_args(argv)
    if args.as_a_monitor and not args.judge:
        raise UserError("states.json is fitted to ten looks; --as-a-monitor goes with --judge")
    files = args.data or [file for name in FITTED if (file := DATA / f"{name}.parquet").exists()]
    runs = [*controls(files), *(strangers(args.strangers) if args.strangers else ())]
    scores = population_scores(runs, args.jobs, as_a_monitor if args.as_a_monitor else tenths)
    if scores.empty:
        raise UserError("no healthy run has a score; give data sets by --data, or strangers' runs by --strangers")
    if not args.judge:
        write_json(args.out, content(scores))
    print(false_states(scores, left_out=not args.judge).to_markdown(index=False))
    own = sorted(fitted_sources(SHIPPED) & {*scores["source"]}) if args.judge else ()
    if own:
        print(f"\nThe shipped file is fitted to {', '.join(own)}: judged by themselves, they look better.")


if __name__ == "__main__":
    sys.exit(main())
