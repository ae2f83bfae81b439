"""Findings of other people's tools on the runs of ``python -m studies.findings``, as CSV files for its --findings.

    PYTHONPATH=. python benchmarks/peer_findings.py --python peers/bin/python --out results/peer_findings
    PYTHONPATH=. python benchmarks/peer_findings.py --data tests/data/real_runs --sources --tools rmetric --out mine
    python -m studies.findings --findings runmedic=results/peer_findings/runmedic.csv

    python -m studies.abroad.benchmark --alerts runmedic=results/peer_findings/runmedic.csv       # steps in hindsight

The tools are given the log that a trainer would have written, as in docs/peers.md; so is ``rmetric`` here.
"""

from __future__ import annotations

import csv
import io
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peer_tools import peer_logs, peer_processes
from peers import INSTALL, TOOLS

from rmetric.cli import Parser, output_folder, positive_number, script
from rmetric.diagnosis import diagnose
from rmetric.errors import UserError
from rmetric.files import write_atomically
from rmetric.progress import progress_bar
from studies.abroad.strangers import SOURCES, strangers_folder
from studies.findings.truth import SETS, Labelled, all_runs

OURS = "rmetric"
HEADER = ("set", "run", "kind", "step", "seconds")
Row = tuple[str, str, str, int | str, float]


def parser() -> Parser:
    """Command line of this script."""
    p = Parser("Ask post-mortem tools for their findings on runs whose truth is known.")
    p.add_argument("--data", type=Path, nargs="*", default=SETS, help="data sets")
    p.add_argument("--strangers", type=Path, help="folder of strangers' runs")
    p.add_argument("--sources", nargs="*", choices=SOURCES, default=[*SOURCES], help="sources of strangers' runs")
    p.add_argument("--python", default=sys.executable, metavar="PATH", help="interpreter that has the tools")
    p.add_argument("--tools", nargs="+", choices=[OURS, *TOOLS], default=[OURS, *TOOLS], help="which tools")
    p.add_argument("--timeout", type=positive_number, default=60.0, help="seconds that a tool has for one log")
    p.add_argument("--out", type=Path, default=Path("results/peer_findings"), help="folder for a CSV a tool")
    p.add_jobs()
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    """Write the logs, ask each tool, write its answers."""
    args = parser().parse_args(argv)
    out = output_folder(args.out)
    runs = list(all_runs(args.data, args.sources, strangers_folder(args.strangers)))
    with tempfile.TemporaryDirectory() as folder:
        logs = [
            Path(folder) / f"{index}.jsonl" for index in range(len(runs))
        ]  # not the run's name: that tells the fault
        for log, labelled in zip(logs, runs, strict=True):
            log.write_text("".join(peer_logs.trainer_log(labelled.run.observations)), encoding="utf-8")
        for tool in args.tools:
            answers = own(logs) if tool == OURS else asked(tool, logs, args)
            rows = [row for labelled, answer in zip(runs, answers, strict=True) for row in rows_of(labelled, answer)]
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows([HEADER, *rows])
            write_atomically(out / f"{tool}.csv", text.getvalue().encode())
            print(f"wrote {out / tool}.csv", flush=True)


def asked(tool: str, logs: Sequence[Path], args: Any) -> list[dict[str, Any]]:
    """Answers of a tool in an interpreter of its own."""
    greeting = peer_processes.greeting(TOOLS[tool], args.python)
    if "missing" in greeting:
        raise UserError(f"{tool} is missing: {greeting['missing']}; install: {INSTALL}")
    tasks = [{"log": str(log), "parts": ["findings"]} for log in logs]
    with progress_bar(total=len(tasks), desc=tool, unit="log") as bar:
        return peer_processes.answers(
            TOOLS[tool], args.python, tasks, jobs=args.jobs, timeout_s=args.timeout, done=bar.update
        )


def own(logs: Sequence[Path]) -> list[dict[str, Any]]:
    """Answers of this project to the same files; it guesses no units, and is told that step times are in seconds."""
    answers = []
    for log in progress_bar(logs, desc=OURS, unit="log"):
        started = time.perf_counter()
        findings = diagnose(log, mapping={"step_time_s": "step_time"}).findings
        seconds = time.perf_counter() - started
        answers.append({"findings": [(one.name, one.step) for one in findings], "seconds": {"findings": seconds}})
    return answers


def rows_of(labelled: Labelled, answer: dict[str, Any]) -> list[Row]:
    """Lines of one run: a finding each, one without a kind if there is none, ``unreadable`` if there was no answer."""
    spent = float(answer.get("seconds", {}).get("findings", 0.0))
    found = answer.get("findings")
    named = [("unreadable", None)] if found is None else found or [("", None)]
    return [
        (labelled.set, labelled.run.name, kind, "" if step is None else int(step), round(spent, 4))
        for kind, step in named
    ]


if __name__ == "__main__":
    sys.exit(main())
