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
from studies.rollback.run import HEALTHY, POLICIES, read_results

TITLES = {"go_on": "data and schedule go on", "rewind": "the loop goes back too"}
COLUMNS = ["fault", "variant", "failing runs", "within 5 %", "share", "stopped", "still failing", "without a rollback",
           "steps lost, median"]  # fmt: skip


def rows_of(results: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """One row a result, with what is known of its run."""
    return pd.DataFrame([
        {"name": result["name"], "fault": result.get("fault", HEALTHY), "group": result["group"], **row}
        for result in results for row in result["rows"]
    ])  # fmt: skip


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a scenario and variant of the policy, over the runs that fail alone."""
    made = []
    for scenario, title in (("passes", "lasts 50 steps or less"), ("stays", "stays to the end")):
        for policy in POLICIES:
            own = rows[(rows["scenario"] == scenario) & (rows["policy"] == policy)]
            kinds, back = own["outcome"].value_counts(), own[own["rollbacks"] > 0]
            within, stopped = int(kinds.get("recovered", 0)), int(kinds.get("stopped", 0))
            share = f"{within / max(len(own), 1):.0%}"
            outcomes = (len(own), within, share, stopped, len(own) - within - stopped)
            made.append([title, TITLES[policy], *outcomes, len(own) - len(back), back["steps_lost"].median()])
    return pd.DataFrame(made, columns=COLUMNS)


def by_fault(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a fault that passes: how many end within 5 %, by variant."""
    own = rows[(rows["scenario"] == "passes") & rows["policy"].isin([*POLICIES])]
    within = own.assign(within=own["outcome"] == "recovered").groupby(["fault", "policy"])["within"]
    counts = within.agg(["sum", "count"]).astype(str).agg(" of ".join, axis=1).reset_index(name="within 5 %")
    return counts.pivot_table(index="fault", columns="policy", values="within 5 %", aggfunc="first").reset_index()


@script
def main(argv: Sequence[str] | None = None) -> None:
    """Parse, read, print."""
    p = Parser("Print what going back was worth, from the results of studies.rollback.run.")
    p.add_argument("--out", type=Path, default=Path("results/rollback"), metavar="FOLDER", help="folder of the results")
    out = p.parse_args(argv).out
    rows = rows_of(read_results(out))
    if rows.empty:
        raise UserError(f"{out} holds no results; make them with python -m studies.rollback.run --out {out}")
    print(table(rows).to_markdown(index=False), end="\n\n")
    print(by_fault(rows).to_markdown(index=False), end="\n\n")
    alone = rows[(rows["scenario"] == "passes") & (rows["policy"] == "alone")]
    print(f"faults of 50 steps or less: {len(alone)} runs, {(alone['outcome'] == 'failed').sum()} of them fail alone")
    watched = rows[rows["policy"].isin([*POLICIES])]
    print(f"healthy steps watched: {watched['healthy_steps'].sum():,}; rollbacks: {watched['false_rollbacks'].sum()}")


if __name__ == "__main__":
    sys.exit(main(None))
