"""The figures of the data card, counted from the data sets themselves.

python -m studies.real_runs.card                           # print them
python -m studies.real_runs.card --into data/README.md     # put them into the card
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from rmetric.cli import Parser, script
from rmetric.dataset.read import read_stored
from rmetric.dataset.stored import StoredRun
from rmetric.evaluation.protocols import Timeline
from rmetric.evaluation.split import halves
from rmetric.evaluation.truth import KINDS
from rmetric.measurements import MEASUREMENTS
from rmetric.records import NO_FAULT
from studies.documents import put_between

BEGIN, END = "<!-- figures: python -m studies.real_runs.card -->", "<!-- end of figures -->"
DATA_SETS = (
    "real_runs", "real_runs_transfer", "real_runs_fresh", "real_runs_transfer_2", "real_runs_fresh_2",
    "real_runs_transfer_3", "real_runs_transfer_4", "real_runs_transfer_5", "zoo", "zoo_2", "zoo_3", "bugs",
)  # fmt: skip
"""Own data sets, in the order of the card."""
SET_COLUMNS = (
    "runs", "records", *KINDS, "distinct healthy steps", "in the fit half", "in the score half",
)  # fmt: skip


def figures(paths: Sequence[str | Path]) -> str:
    """Markdown: runs, records and healthy steps by data set, outcomes by fault, and what each column holds."""
    sets = {Path(path).stem: read_stored(path) for path in paths}
    stored = [run for runs in sets.values() for run in runs]
    rows = [_set_row(name, runs) for name, runs in sets.items()]
    return "\n".join([*_table(rows), "", *_table(_fault_rows(stored)), "", *_table(_column_rows(stored))]) + "\n"


def _table(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    if rows:
        yield f"| {' | '.join(rows[0])} |"
        yield "|" + "---|" * len(rows[0])
        yield from (f"| {' | '.join(row.values())} |" for row in rows)


def _set_row(part: str, stored: Sequence[StoredRun]) -> dict[str, str]:
    runs = [item.run() for item in stored]
    timeline, split = Timeline.of(runs), halves(runs)
    counted = timeline.counted("strict")
    kinds: Counter[str] = Counter(truth.kind for truth in timeline.truths)
    numbers: dict[str, int] = {
        "runs": len(runs),
        "records": len(timeline.step),
        **kinds,
        "distinct healthy steps": timeline.healthy_steps[counted].sum(),
        "in the fit half": timeline.healthy_steps[counted & split.fit].sum(),
        "in the score half": timeline.healthy_steps[counted & split.score].sum(),
    }
    return {"set": part, **{name: f"{int(numbers.get(name, 0)):,}" for name in SET_COLUMNS}}


def _fault_rows(stored: Sequence[StoredRun]) -> list[dict[str, str]]:
    """One row a set, fault and severity; control runs by their disturbance."""
    groups: dict[tuple[str, str, str], list[StoredRun]] = {}
    for item in stored:
        labels = item.labels
        disturbance = json.loads(labels["disturbance"] or "{}").get("type", "-")
        kind = disturbance if labels["fault"] == NO_FAULT else labels["severity"]
        groups.setdefault((labels["set"], labels["fault"], kind), []).append(item)
    rows = []
    for (part, fault, kind), items in groups.items():
        kinds = Counter(item.labels["outcome"] for item in items)
        steps = [
            item.labels["failure_step"] - item.labels["onset"]
            for item in items
            if item.labels["failure_step"] is not None and item.labels["onset"] is not None
        ]
        spread = f"{np.median(steps):g} ({min(steps)} to {max(steps)})" if steps else "–"
        counts: dict[str, str] = {name: str(kinds[name]) for name in KINDS}
        rows.append({"set": part, "fault": fault, "severity or disturbance": kind, "runs": str(len(items)), **counts,
                     "onset to failure (steps): median (range)": spread})  # fmt: skip
    return rows


def _column_rows(stored: Sequence[StoredRun]) -> list[dict[str, str]]:
    rows = []
    for name in MEASUREMENTS:
        values = np.concatenate(
            [item.chunk.columns.get(name, np.full(len(item.chunk.step), np.nan)) for item in stored]
        )
        finite = values[np.isfinite(values)]
        rows.append(
            {
                "column": f"`{name}`",
                "records that have it": f"{100 * float((~np.isnan(values)).mean()):.1f} %",
                "not finite": f"{int(np.isinf(values).sum()):,}",
                "least": f"{finite.min():.4g}" if len(finite) else "–",
                "most": f"{finite.max():.4g}" if len(finite) else "–",
            }
        )
    return rows


def parser() -> Parser:
    p = Parser("Count the figures of the data card from the data sets.")
    own = [Path("data", f"{name}.parquet") for name in DATA_SETS]
    p.add_argument(
        "data_sets", nargs="*", type=Path, default=own, metavar="FILE", help="data sets (default: all own ones)"
    )
    p.add_argument("--into", type=Path, metavar="CARD", help="Markdown file to put them into (default: the screen)")
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    """Parse, count, print or write."""
    args = parser().parse_args(argv)
    found = figures(args.data_sets)
    if args.into is None:
        print(found, end="")
        return
    put_between(args.into, BEGIN, END, found)
    print(f"figures of {len(args.data_sets)} data sets put into {args.into}")


if __name__ == "__main__":
    sys.exit(main())
