"""Findings as HTML, for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rmetric.diagnosis.finding import Finding
from rmetric.diagnosis.text import span, sureness

COLOURS = {"note": "#1a7f9c", "warning": "#b26a00", "error": "#b3261e"}


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
