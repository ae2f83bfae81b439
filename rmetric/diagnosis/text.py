"""Findings as text, and as HTML for a notebook."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from html import escape

from rmetric.diagnosis.finding import FAILED, Finding
from rmetric.states.base import frequency

WIDTH = 100
COLOURS = {"note": "#1a7f9c", "warning": "#b26a00", "error": "#b3261e"}


def sureness(finding: Finding) -> str:
    """How rarely a healthy run shows as much."""
    if finding.name == FAILED:
        return "it says so itself"
    if math.isnan(finding.sure):
        return "how rare this is in healthy runs is not known"
    return "no healthy step that was measured shows this" if finding.sure == 1.0 else frequency(1.0 - finding.sure)


def span(finding: Finding) -> str:
    steps = f"step {finding.step:,}"
    return steps if finding.until == finding.step else f"{steps} to {finding.until:,}"


def lines_of(finding: Finding) -> list[str]:
    return [
        f"{finding.severity.upper()} {finding.name}, {span(finding)}",
        wrapped(f"{finding.sentence} ({sureness(finding)})"),
        wrapped(f"likely causes: {'; '.join(finding.causes)}"),
        wrapped(f"what to do: {finding.advice}"),
    ]


def wrapped(text: str, indent: str = "  ") -> str:
    """Text in lines of up to 100 characters."""
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False)


def table_of(findings: Sequence[Finding]) -> str:
    """A table with a row a finding; empty without any."""
    if not findings:
        return ""
    columns = "".join(f"<th>{name}</th>" for name in ("", "finding", "evidence", "likely causes", "what to do"))
    rows = "".join(map(_row, findings))
    return f"<table><thead><tr>{columns}</tr></thead><tbody>{rows}</tbody></table>"


def _row(finding: Finding) -> str:
    severity = f'<b style="color:{COLOURS[finding.severity]}">{finding.severity}</b>'
    causes = "".join(f"<li>{escape(cause)}</li>" for cause in finding.causes)
    cells = (
        severity,
        f"{escape(finding.name)}<br>{escape(span(finding))}",
        f"{escape(finding.sentence)} ({escape(sureness(finding))})",
        f"<ol>{causes}</ol>",
        escape(finding.advice),
    )
    return "<tr>" + "".join(f'<td style="text-align:left;vertical-align:top">{cell}</td>' for cell in cells) + "</tr>"
