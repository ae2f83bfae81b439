"""Tables of a report: what the page says in words, with all that its curves mark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rmetric.diagnosis.text import sureness
from rmetric.plain_numbers import number_in_words
from rmetric.replay import plain_text
from rmetric.report.panels import PANELS
from rmetric.report.reported import ReportedRun

Cell = str | dict[str, Any]
"""Text, or what ``tables.html`` makes of a ``kind``."""
NOTHING = "–"


class PageColumn(NamedTuple):
    title: str
    number: bool = False
    """Aligned to the right."""


class PageTable(NamedTuple):
    id: str
    label: str
    columns: Sequence[PageColumn]
    rows: Sequence[Sequence[Cell]]


def runs_table(runs: Sequence[ReportedRun]) -> PageTable:
    columns = (PageColumn("Run"), PageColumn("Verdict"), PageColumn("Records", True), PageColumn("Steps", True),
               PageColumn("Format"), PageColumn("Log"))  # fmt: skip
    rows = []
    for index, run in enumerate(runs):
        found = run.diagnosis
        steps = (
            NOTHING if found.first_step is None or found.last_step is None else _span(found.first_step, found.last_step)
        )
        log = {"kind": "path", "text": plain_text(found.source) or NOTHING}
        rows.append([_run(index, run), found.verdict, f"{found.records:,}", steps, found.format, log])
    return PageTable("runs", "Runs", columns, rows)


def findings_table(runs: Sequence[ReportedRun]) -> PageTable:
    """One row a finding, those of one run together."""
    several = len(runs) > 1
    columns = [PageColumn("No.", True), PageColumn("Severity"), *([PageColumn("Run")] if several else []),
               PageColumn("Finding"), PageColumn("Steps"), PageColumn("Evidence"),
               PageColumn("What to do")]  # fmt: skip
    found = [(index, finding) for index, run in enumerate(runs) for finding in run.diagnosis.findings]
    rows = [
        [
            str(number),
            {"kind": "badge", "text": finding.severity},
            *([_run(index, runs[index])] if several else []),
            {"kind": "code", "text": finding.name},
            {"kind": "goto", "finding": number, "text": _span(finding.step, finding.until)},
            {"kind": "remarked", "text": finding.sentence, "remark": f"({sureness(finding)})"},
            {"kind": "remarked", "text": finding.advice, "remark": _causes(finding.causes)},
        ]
        for number, (index, finding) in enumerate(found, 1)
    ]
    return PageTable("findings", "Findings", columns, rows)


def numbers_table(runs: Sequence[ReportedRun]) -> PageTable:
    """One row a curve: the curves for those who cannot see them."""
    several = len(runs) > 1
    heads = ("First", "Lowest", "Highest", "Last", "Values", "Not finite")
    columns = [
        PageColumn("Measurement"),
        *([PageColumn("Run")] if several else []),
        *(PageColumn(head, True) for head in heads),
    ]
    rows: list[list[Cell]] = []
    for panel in PANELS:
        for name, label in panel.curves:
            title = panel.title if len(panel.curves) == 1 else f"{panel.title}, {label}"
            title += f" ({panel.unit})" if panel.unit else ""
            for index, run in enumerate(runs):
                if curve := run.curves.get(name):
                    values = curve.values if len(curve.values) else np.array([math.nan])
                    numbers = [curve.first, float(values.min()), float(values.max()), curve.last]
                    shown = [
                        *(number_in_words(value, digits=5, missing=NOTHING) for value in numbers),
                        f"{curve.records:,}",
                        f"{curve.broken:,}",
                    ]
                    rows.append([title, *([_run(index, run)] if several else []), *shown])
    return PageTable("numbers", "The curves in numbers", columns, rows)


def remarks_table(runs: Sequence[ReportedRun]) -> PageTable:
    """What could not be judged, and what was noted about the logs."""
    several = len(runs) > 1
    columns = [*([PageColumn("Run")] if several else []), PageColumn("What"), PageColumn("Why")]
    rows: list[list[Cell]] = []
    for index, run in enumerate(runs):
        who = [_run(index, run)] if several else []
        rows += [[*who, what, why] for what, why in run.diagnosis.not_judged.items()]
        rows += [[*who, "note", plain_text(note)] for note in run.diagnosis.notes]
    return PageTable("remarks", "Not judged, and notes", columns, rows)


def _run(index: int, run: ReportedRun) -> Cell:
    return {"kind": "run", "run": index, "text": run.name}


def _span(first: int, last: int) -> str:
    return f"{first:,}" if first == last else f"{first:,} – {last:,}"


def _causes(causes: Sequence[str]) -> str:
    return f"Likely: {'; '.join(causes)}." if causes else ""
