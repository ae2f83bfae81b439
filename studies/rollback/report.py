"""Print what going back was worth, from the results of studies.rollback.run.

python -m studies.rollback.report                       # results/rollback/runs.jsonl
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from rmetric.cli import Parser, script
from rmetric.errors import UserError
from studies.courses import read_results
from studies.rollback.run import HEALTHY, POLICIES

TITLES = {"go_on": "data and schedule go on", "rewind": "the loop goes back too"}
COLUMNS = ["fault", "variant", "failing runs", "within 5 %", "share", "stopped", "still failing", "undecided",
           "without a rollback", "steps lost, median"]  # fmt: skip


def rows_of(results: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """One row a result, with what is known of its run."""
    return pd.DataFrame([
        {"name": result["name"], "fault": result.get("fault", HEALTHY), "group": result["group"], **row}
        for result in results for row in result["rows"]
    ])  # fmt: skip


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a scenario and variant of the policy, over the runs that fail alone.

    ``undecided``: the excess over the twin begins in the last steps.
    """
    made = []
    for scenario, title in (("passes", "lasts 50 steps or less"), ("stays", "stays to the end")):
        for policy in POLICIES:
            own = rows[(rows["scenario"] == scenario) & (rows["policy"] == policy)]
            kinds, back = own["outcome"].value_counts(), own[own["rollbacks"] > 0]
            within, *others = (int(kinds.get(kind, 0)) for kind in ("recovered", "stopped", "failed", "censored"))
            outcomes = (len(own), within, f"{within / len(own):.0%}" if len(own) else "n/a", *others)
            made.append([title, TITLES[policy], *outcomes, len(own) - len(back), back["steps_lost"].median()])
    return pd.DataFrame(made, columns=COLUMNS)


def by_fault(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a fault that passes: how many end within 5 %, by variant."""
    own = rows[(rows["scenario"] == "passes") & rows["policy"].isin([*POLICIES])]
    within = own.assign(within=own["outcome"] == "recovered").groupby(["fault", "policy"])["within"]
    counts = within.agg(["sum", "count"]).astype(str).agg(" of ".join, axis=1).reset_index(name="within 5 %")
    return counts.pivot_table(index="fault", columns="policy", values="within 5 %", aggfunc="first").reset_index()


def healthy_steps(results: Sequence[dict[str, Any]]) -> int:
    """Distinct healthy steps of the twins that a policy watched: every fork of a twin goes through the same ones."""
    watched: set[tuple[str, int]] = set()
    for result in results:
        for row in result["rows"]:
            if row["policy"] in POLICIES:
                end = result.get("onset", row["healthy_steps"] + 1)
                watched |= {(result["group"], step) for step in range(end - row["healthy_steps"], end)}
    return len(watched)


def parser() -> Parser:
    p = Parser("Print what going back was worth, from the results of studies.rollback.run.")
    p.add_argument("--out", type=Path, default=Path("results/rollback"), metavar="FOLDER", help="folder of the results")
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    out = parser().parse_args(argv).out
    results = read_results(out)
    rows = rows_of(results)
    if rows.empty:
        raise UserError(f"{out} holds no results; make them with python -m studies.rollback.run --out {out}")
    print(table(rows).to_markdown(index=False), end="\n\n")
    print(by_fault(rows).to_markdown(index=False), end="\n\n")
    alone = rows[(rows["scenario"] == "passes") & (rows["policy"] == "alone")]
    print(f"faults of 50 steps or less: {len(alone)} runs, {(alone['outcome'] == 'failed').sum()} of them fail alone")
    rollbacks = rows.loc[rows["policy"].isin([*POLICIES]), "false_rollbacks"].sum()
    print(f"healthy steps watched, each counted once: {healthy_steps(results):,}; rollbacks: {rollbacks}")


if __name__ == "__main__":
    sys.exit(main())
