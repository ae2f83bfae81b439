"""``rmetric diagnose LOG…``: a verdict on each run."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmetric.commands.logs import FOUND, UNUSABLE, add_logs, each, reading
from rmetric.diagnosis.finding import SEVERITIES

if TYPE_CHECKING:
    from rmetric.diagnosis import Diagnosis

MOST_NOTES = 10
"""Different notes on runs without a finding that are printed."""
EPILOG = """\
examples:
  rmetric diagnose run.jsonl
  rmetric diagnose output_dir/ --fail-on error --sarif > findings.sarif

Steps are training steps as the log counts them. "Sure" is 1 minus the share of healthy runs that show as much.
Exit status: 0 nothing found, 1 findings, 2 a log of which too little, or nothing, can be used.
"""


def add_parser(commands: Any, summary: str) -> None:
    p = commands.add_parser("diagnose", help=summary, description=f"Give a {summary}.", epilog=EPILOG, examples=True)
    add_logs(p)
    output = p.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print JSON, one list of diagnoses")
    output.add_argument("--sarif", action="store_true", help="print SARIF 2.1.0, for tools that show findings")
    p.add_argument(
        "--fail-on", choices=SEVERITIES, default="note", metavar="SEVERITY",
        help="lowest severity that gives exit status 1: note (it has passed), warning, or error (the run is broken)",
    )  # fmt: skip
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Diagnose, print, and tell by the exit status."""
    from rmetric.diagnosis import diagnose_runs

    options = reading(args)
    found = list(each(args.logs, lambda log: diagnose_runs(log, **options)))
    diagnoses = _told_apart([diagnosis for diagnosis in found if diagnosis is not None])
    if diagnoses:
        print(_as_json(diagnoses, sarif=args.sarif) if args.json or args.sarif else _as_text(diagnoses))
    if len(diagnoses) < len(found) or any(one.nothing_to_judge or one.largely_unread for one in diagnoses):
        return UNUSABLE
    least = SEVERITIES.index(args.fail_on)
    grave = any(one.severity is not None and SEVERITIES.index(one.severity) >= least for one in diagnoses)
    return FOUND if grave else 0


def _told_apart(diagnoses: Sequence[Diagnosis]) -> list[Diagnosis]:
    """Diagnoses of several logs, no two runs of one name."""
    from rmetric.importers.log_names import shown_names

    names = shown_names([(Path(one.source), one.run) for one in diagnoses])
    return [replace(one, run=name) for one, name in zip(diagnoses, names, strict=True)]


def _as_text(diagnoses: Sequence[Diagnosis]) -> str:
    """One run: everything. Several: a line each, then those with findings in full, and the notes on the others."""
    if len(diagnoses) == 1:
        return str(diagnoses[0])
    from rmetric.log_lines import plain_text

    lines = [diagnosis.in_brief for diagnosis in diagnoses]
    notes = Counter(note for diagnosis in diagnoses if not diagnosis.findings for note in diagnosis.notes)
    told = [
        f"Note ({count} run{'s' if count > 1 else ''}): {plain_text(note, None)}"
        for note, count in notes.most_common(MOST_NOTES)
    ]
    if len(notes) > MOST_NOTES:
        told.append(f"{len(notes) - MOST_NOTES:,} further notes: --json")
    parts = ["\n".join(lines), *(str(diagnosis) for diagnosis in diagnoses if diagnosis.findings), "\n".join(told)]
    return "\n\n".join(part for part in parts if part)


def _as_json(diagnoses: Sequence[Diagnosis], *, sarif: bool) -> str:
    from rmetric.diagnosis.sarif import as_sarif

    content = as_sarif(diagnoses) if sarif else [diagnosis.to_dict() for diagnosis in diagnoses]
    return json.dumps(content, indent=1, allow_nan=False)
