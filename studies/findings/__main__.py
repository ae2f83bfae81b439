"""Score findings: right and wrong ones by kind, problems found by name, false findings on healthy runs; tools beside.

    python -m studies.findings                                    # what data/ holds: five minutes on two cores
    python -m studies.findings --data data/real_runs.parquet
    python -m studies.findings --strangers FOLDER                 # Megatron and Hugging Face as well
    python -m studies.findings --findings runmedic=runmedic.csv   # columns set, run, kind, step, seconds

Tables (Markdown, CSV, LaTeX): by kind, by problem, by tool.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from rmetric.cli import Parser, output_folder, script
from rmetric.errors import UserError
from rmetric.evaluation.scores import Score
from rmetric.evaluation.studies import in_parallel
from rmetric.reporting.table import Cell, Column, Table, to_screen, write
from studies.abroad.benchmark import files_by_name, named_file
from studies.abroad.strangers import FOLDER_VARIABLE, SOURCES, strangers_folder
from studies.findings.judging import MEANT, Answer, answers_of, ours, problems, verdicts
from studies.findings.truth import SETS, Labelled, all_runs

OURS = "rmetric"
KINDS = (
    Column("tool", "Tool"), Column("kind", "Finding"), Column("right", "Right"), Column("wrong", "Wrong"),
    Column("false", "On healthy runs"), Column("unknown", "Not decided"), Column("precision", "Precision"),
    Column("meant", "Problems meant"), Column("as_this", "Found as this"), Column("recall", "Found at all"),
)  # fmt: skip
PROBLEMS = (
    Column("set", "Set"), Column("problem", "Problem"), Column("outcome", "Outcome"), Column("count", "Number"),
    Column("found", "Found"), Column("kinds", "Most often as"),
)  # fmt: skip
TOOLS = (
    Column("tool", "Tool"), Column("set", "Set"), Column("runs", "Runs"), Column("read", "Read"),
    Column("right", "Findings right"), Column("wrong", "Wrong"), Column("false_runs", "Healthy runs with a finding"),
    Column("alarmed", "With more than a note"), Column("failed", "Failures found"),
    Column("seconds", "Seconds a log", 3),
)  # fmt: skip


def parser() -> Parser:
    p = Parser("Score the findings of diagnoses, and of other tools on the same runs.")
    p.add_argument("--data", type=Path, nargs="*", default=SETS, help="data sets")
    p.add_argument(
        "--strangers", type=Path, help=f"folder of strangers' runs (default: ${FOLDER_VARIABLE}, then data/)"
    )
    p.add_argument("--sources", nargs="*", choices=SOURCES, default=[*SOURCES], help="sources of strangers' runs")
    p.add_argument(
        "--findings", type=named_file, nargs="*", action="extend", default=[], metavar="NAME=FILE",
        help="CSV of the findings of another tool, and its name",
    )  # fmt: skip
    p.add_argument("--out", type=Path, default=Path("results/findings"), help="folder for the tables")
    p.add_jobs()
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    """Load, diagnose, judge, print and write."""
    args = parser().parse_args(argv)
    files = files_by_name("--findings", args.findings, {OURS: "our own findings"})
    runs = list(all_runs(args.data, args.sources, strangers_folder(args.strangers)))
    if not runs:
        raise UserError("there is no run to judge; give --data or --strangers FOLDER")
    found = list(in_parallel(ours, [labelled.run for labelled in runs], args.jobs, "diagnosing", "run"))
    answers = {OURS: found} | {name: answers_of(file, runs) for name, file in files.items()}
    tables = [by_kind(runs, answers), by_problem(runs, answers[OURS]), by_tool(runs, answers)]
    out = output_folder(args.out)
    for table in tables:
        write(table, out)
        print(to_screen(table))


def by_kind(runs: Sequence[Labelled], answers: dict[str, list[Answer]]) -> Table:
    rows = [
        row for tool, found in answers.items() for row in _kinds(tool, verdicts(runs, found), problems(runs, found))
    ]
    caption = "Findings by kind. Precision: right of right, wrong and those on healthy runs. Exact 95 % intervals."
    return Table("findings_kinds", "Findings by kind", caption, KINDS, rows)


def _kinds(tool: str, said: pd.DataFrame, there: pd.DataFrame) -> Iterator[dict[str, Cell]]:
    for kind, of_kind in said.groupby("kind"):
        count = of_kind["verdict"].value_counts()
        right, wrong, false, unknown = (int(count.get(name, 0)) for name in ("right", "wrong", "false", "unknown"))
        meant = there[there["problem"].isin(MEANT.get(str(kind), ())) & (there["outcome"] != "recovered")]
        as_this = int(meant["kinds"].map(lambda kinds, kind=kind: kind in kinds).sum())
        yield {
            "tool": tool, "kind": str(kind), "right": right, "wrong": wrong, "false": false, "unknown": unknown,
            "precision": Score.share(right, right + wrong + false), "meant": len(meant) or None,
            "as_this": Score.share(as_this, len(meant)), "recall": Score.share(int(meant["found"].sum()), len(meant)),
        }  # fmt: skip


def by_problem(runs: Sequence[Labelled], answers: Sequence[Answer]) -> Table:
    rows: list[dict[str, Cell]] = []
    for key, there in problems(runs, answers).groupby(["set", "problem", "outcome"], sort=False):
        set_name, problem, outcome = map(str, key)
        kinds = pd.Series([kind for kinds in there["kinds"] for kind in kinds], dtype=str).value_counts()
        rows.append({
            "set": set_name, "problem": problem, "outcome": outcome, "count": len(there),
            "found": Score.share(int(there["found"].sum()), len(there)), "kinds": ", ".join(kinds.index[:2]) or None,
        })  # fmt: skip
    return Table("findings_problems", "Problems found", "Problems with a finding about them.", PROBLEMS, rows)


def by_tool(runs: Sequence[Labelled], answers: dict[str, list[Answer]]) -> Table:
    rows = []
    for tool, found in answers.items():
        for name in dict.fromkeys(labelled.set for labelled in runs):
            chosen = [index for index, labelled in enumerate(runs) if labelled.set == name]
            rows.append(_tool(tool, name, [runs[index] for index in chosen], [found[index] for index in chosen]))
    return Table("findings_tools", "Tools on the same runs", "Exact 95 % intervals.", TOOLS, rows)


def _tool(tool: str, name: str, runs: Sequence[Labelled], answers: Sequence[Answer]) -> dict[str, Cell]:
    said, there = verdicts(runs, answers)["verdict"].value_counts(), problems(runs, answers)
    failed = there[there["outcome"].isin(("failed", "failure"))]
    healthy = [answer.said for labelled, answer in zip(runs, answers, strict=True) if labelled.healthy]
    alarmed = sum(any(not said.mild for said in found) for found in healthy)
    return {
        "tool": tool, "set": name, "runs": len(runs), "read": sum(answer.readable for answer in answers),
        "right": int(said.get("right", 0)), "wrong": int(said.get("wrong", 0) + said.get("false", 0)),
        "false_runs": Score.share(sum(map(bool, healthy)), len(healthy)), "alarmed": Score.share(alarmed, len(healthy)),
        "failed": Score.share(int(failed["found"].sum()), len(failed)),
        "seconds": sum(answer.seconds for answer in answers) / len(answers),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
