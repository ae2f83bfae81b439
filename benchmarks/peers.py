"""Post-mortem tools that people install today, on the same logs and by the same protocols as the own detectors.

    python -m venv peers && peers/bin/pip install -r benchmarks/requirements-peers.txt
    python benchmarks/peers.py --logs logs_REAL --python peers/bin/python --limit 60 > peers.json
    python benchmarks/peers.py --logs tests/data/real_runs --python peers/bin/python --tools losslint   # 10 s

JSON goes to standard output, the tables (Markdown) and the progress to standard error. What each tool is given, what
counts as its alarm and how that is scored: docs/peers.md.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from peer_tools import peer_logs, peer_processes, peer_scores

from rmetric.cli import Parser, positive_number, script, whole_number
from rmetric.detectors import DETECTORS, make_detector
from rmetric.evaluation.protocols import PROTOCOLS, Timeline
from rmetric.evaluation.scores import resample
from rmetric.evaluation.split import halves
from rmetric.evaluation.studies import load_study
from rmetric.evaluation.truth import Truth, truth_of
from rmetric.files import DEFAULT_LOGS, write_atomically
from rmetric.progress import progress_bar
from rmetric.records import Run
from rmetric.reporting.table import Column, Table, to_markdown

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements-peers.txt"
TOOLS = {path.stem.removesuffix("_adapter"): path for path in sorted((HERE / "peer_tools").glob("*_adapter.py"))}
INSTALL = (
    "python -m venv peers && peers/bin/pip install -r benchmarks/requirements-peers.txt, then --python peers/bin/python"
)
OWN = [name for name in ("robust_z", "r_metric_robust") if name in DETECTORS]
COLUMNS = (
    Column("tool", "tool"),
    Column("version", "version"),
    Column("alarm", "alarm"),
    Column("way", "used"),
    Column("runs", "runs"),
    Column("no_verdict", "no verdict"),
    Column("precision", "precision", interval=False),
    Column("recall", "recall", interval=False),
    Column("f1", "F1 (95 % interval)"),
    Column("false_alarms_per_1000", "false alarms / 1,000 healthy steps", 2, "strict", interval=False),
    Column("mean_lead", "mean lead (steps)", 1, interval=False),
    Column("seconds_per_log", "s / log", 3),
)
Row = dict[str, Any]


def parser() -> Parser:
    """Command line of this script."""
    p = Parser("Score post-mortem tools of others on this project's logs, by its strict protocol and by the paper's.")
    p.add_argument("--logs", type=Path, default=DEFAULT_LOGS, help="folder of .jsonl logs")
    p.add_argument("--python", default=sys.executable, metavar="PATH", help="interpreter that has the tools")
    p.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS), help="which tools")
    p.add_argument("--detectors", nargs="*", choices=list(DETECTORS), default=OWN, help="own detectors beside them")
    p.add_argument("--half", choices=("score", "fit", "all"), default="score", help="half of the seeds that is judged")
    p.add_argument("--limit", type=whole_number(1), help="judge a stratified sample of so many runs (default: all)")
    p.add_argument("--seed", type=whole_number(0), default=0, help="seed of the sample and of the bootstrap")
    p.add_bootstrap()
    p.add_argument("--poll", type=whole_number(1), default=1, help="records between two looks at a growing log")
    p.add_argument("--timeout", type=positive_number, default=120.0, help="seconds that a tool has for one log")
    p.add_argument("--out", type=Path, help="also write the JSON to this file, and the tables beside it as .md")
    p.add_jobs()
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    study = load_study(args.logs, args.jobs)
    runs, truths, description = chosen(study.runs, args.half, args.limit, args.seed)
    timeline = Timeline.of(runs)
    weights_BR = resample(len(runs), args.bootstrap, np.random.default_rng(args.seed))  # the same for all: they pair
    tools = judged(runs, truths, timeline, weights_BR, args)
    detectors = [own(name, runs, timeline, weights_BR) for name in args.detectors]
    report = {
        "machine": f"{platform.system()} {platform.machine()}",
        "logs": str(args.logs),
        "half": args.half,
        "runs": {**description, "healthy_steps": int(timeline.healthy_steps.sum())},
        "poll_records": args.poll,
        "timeout_s": args.timeout,
        "bootstrap": args.bootstrap,
        "seed": args.seed,
        "tools": tools,
        "detectors": detectors,
    }
    text = json.dumps(report, indent=1, default=peer_scores.as_json, allow_nan=False)
    markdown = "\n".join(to_markdown(table) for table in tables(report))
    print(text)
    print(markdown, file=sys.stderr)
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(args.out, text.encode() + b"\n")
        write_atomically(args.out.with_suffix(".md"), markdown.encode())


def chosen(
    runs: Sequence[Run], half: str, limit: int | None, seed: int
) -> tuple[list[Run], list[Truth], dict[str, Any]]:
    """Runs to judge, their truths, and what was chosen from what. Censored and incomplete runs are in no score."""
    truths = [truth_of(run) for run in runs]
    in_half = np.ones(len(runs), bool) if half == "all" else getattr(halves(runs), half)
    known = [index for index, truth in enumerate(truths) if truth.counted and in_half[index]]
    picked = peer_logs.sampled([runs[i] for i in known], [truths[i] for i in known], limit, seed)
    kept = [known[at] for at in picked]
    kinds = Counter(truths[index].kind for index in kept)
    left_out = Counter(
        truth.kind for truth, inside in zip(truths, in_half, strict=True) if inside and not truth.counted
    )
    description = {"judged": len(kept), "of": len(known), "kinds": dict(kinds), "left_out": dict(left_out)}
    return [runs[index] for index in kept], [truths[index] for index in kept], description


def judged(
    runs: Sequence[Run], truths: Sequence[Truth], timeline: Timeline, weights_BR: NDArray[np.float64], args: Any
) -> list[dict[str, Any]]:
    """One entry a tool: its version and rows, or that it is missing and how to install it."""
    pins = pinned()
    entries = []
    cuts = [peer_logs.records_to_failure(run, truth) for run, truth in zip(runs, truths, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        tasks = []
        for index, (run, cut) in enumerate(zip(runs, cuts, strict=True)):
            log = Path(folder) / f"{index}.jsonl"  # not the run's name: that tells the fault
            log.write_text("".join(peer_logs.trainer_log(run.observations)), encoding="utf-8")
            tasks.append({"log": str(log), "cuts": [cut, len(run.observations)], "poll": args.poll})
        for tool in args.tools:
            greeting = peer_processes.greeting(TOOLS[tool], args.python)
            if "missing" in greeting:
                entries.append({"tool": tool, "pinned": pins[tool], "missing": greeting["missing"], "install": INSTALL})
                continue
            with progress_bar(total=len(tasks), desc=tool, unit="log") as bar:
                settings = {"jobs": args.jobs, "timeout_s": args.timeout, "done": bar.update}
                answers = peer_processes.answers(TOOLS[tool], args.python, tasks, **settings)
            rows = tool_rows(tool, greeting, answers, runs, cuts, timeline, weights_BR)
            rules = Counter(rule for answer in answers for rule in answer.get("rules", ()))
            entry = {"tool": tool, "pinned": pins[tool], "version": greeting["version"], "python": greeting["python"]}
            entries.append({**entry, "logs_with_finding": dict(sorted(rules.items())), "rows": rows})
    return entries


def tool_rows(
    tool: str,
    greeting: dict[str, Any],
    answers: Sequence[dict[str, Any]],
    runs: Sequence[Run],
    cuts: Sequence[int],
    timeline: Timeline,
    weights_BR: NDArray[np.float64],
) -> list[Row]:
    """One row for each reading of the tool's alarms, way of use and protocol."""
    rows = []
    for alarm in greeting["alarms"]:
        for way, (part, protocols) in peer_scores.WAYS.items():
            inputs = zip(runs, answers, cuts, strict=True)
            found = [peer_scores.scores_of(run, answer, way, alarm, cut) for run, answer, cut in inputs]
            scores = [score for score in found if score is not None]
            if len(scores) < len(found):
                continue  # no such alarm in this way of use
            broken = [why for answer in answers if (why := peer_scores.broken_part(answer, way)) is not None]
            said = {"tool": tool, "version": greeting["version"], "alarm": alarm, "way": way, "runs": len(runs)}
            said |= {"no_verdict": len(broken), "first_error": broken[0] if broken else None}
            if part == "named":
                said |= named_steps(answers, alarm)
            for protocol in protocols:
                summary = peer_scores.summary(timeline, np.concatenate(scores), protocol, weights_BR)
                summary = peer_scores.timeless(summary) if part == "verdicts" else summary
                rows.append({**said, "protocol": protocol, "seconds_per_log": seconds(answers, part), **summary})
    return rows


def named_steps(answers: Sequence[dict[str, Any]], alarm: str) -> dict[str, int]:
    """Number of steps that the verdicts name, and of those that the tool names on the log up to that step as well."""
    parts = [answer["named"][alarm] for answer in answers if answer.get("named") is not None]
    return {f"steps_{kind}": sum(len(part[kind]) for part in parts) for kind in ("named", "confirmed")}


def seconds(answers: Sequence[dict[str, Any]], part: str) -> float | None:
    """Mean seconds a log, the tool's start not included."""
    wanted = {"live": ("live",), "named": ("verdict", "named"), "verdicts": ("verdict",)}[part]
    return peer_scores.mean(
        [sum(answer["seconds"][name] for name in wanted) for answer in answers if "seconds" in answer]
    )


def own(name: str, runs: Sequence[Run], timeline: Timeline, weights_BR: NDArray[np.float64]) -> dict[str, Any]:
    """One of this project's detectors at its published threshold, on the same runs."""
    detector = make_detector(name)
    started = time.perf_counter()
    scores = np.concatenate([detector.score_run(run.observations) for run in runs])
    spent = peer_scores.rounded((time.perf_counter() - started) / len(runs))
    said: Row = {"tool": f"rmetric {name}", "version": "this", "alarm": f"> {detector.threshold:g}", "way": "live"}
    said |= {"runs": len(runs), "no_verdict": 0, "first_error": None, "seconds_per_log": spent}
    rows = [
        {
            **said,
            "protocol": protocol,
            **peer_scores.summary(timeline, scores, protocol, weights_BR, detector.threshold),
        }
        for protocol in PROTOCOLS
    ]
    return {"detector": name, "threshold": detector.threshold, "rows": rows}


def pinned() -> dict[str, str]:
    """Tool → version in the requirements file."""
    lines = [line.split("#")[0].strip() for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines()]
    pins = (line.split("==") for line in lines if line)
    return {name.partition("[")[0]: version for name, version in pins}  # without its extras


def tables(report: dict[str, Any]) -> list[Table]:
    """The two tables: strict, paper."""
    rows = [row for entry in (*report["tools"], *report["detectors"]) for row in entry.get("rows", ())]
    runs = report["runs"]
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(runs["kinds"].items()))
    caption = f"{runs['judged']} of {runs['of']} runs ({kinds}) of {report['logs']}, half: {report['half']}."
    return [
        Table(
            f"peers_{protocol}",
            f"Tools of others, {protocol} protocol",
            caption,
            [column for column in COLUMNS if column.protocol in ("", protocol)],
            [row for row in rows if row["protocol"] == protocol],
            notes(report["tools"], rows),
        )
        for protocol in ("strict", "paper")
    ]


def notes(tools: Sequence[dict[str, Any]], rows: Sequence[Row]) -> list[str]:
    """Tools that are missing or of another version, logs without a verdict."""
    lines = []
    for tool in tools:
        if "missing" in tool:
            lines.append(f"{tool['tool']} {tool['pinned']} is missing: {tool['missing']}. Install: {tool['install']}")
        elif tool["version"] != tool["pinned"]:
            lines.append(f"{tool['tool']} is {tool['version']}, not the pinned {tool['pinned']}.")
    lines += [
        f"{row['tool']}, {row['way']}: no verdict on {row['no_verdict']} logs; the first: {row['first_error']}"
        for row in rows
        if row["no_verdict"]
    ]
    return list(dict.fromkeys(lines))


if __name__ == "__main__":
    sys.exit(main())
