"""A finding as text."""

from __future__ import annotations

import math
import textwrap

from rmetric.diagnosis.finding import Finding
from rmetric.states.base import frequency

WIDTH = 100


def sureness(finding: Finding) -> str:
    """How rarely a healthy run shows as much."""
    if math.isnan(finding.sure):
        return "how rare this is in healthy runs is not known"
    return "no healthy step that was measured shows this" if finding.sure == 1.0 else frequency(1.0 - finding.sure)


def span(finding: Finding) -> str:
    """Steps of a finding."""
    steps = f"step {finding.step:,}"
    return steps if finding.until == finding.step else f"{steps} to {finding.until:,}"


def lines_of(finding: Finding) -> list[str]:
    """A finding in full."""
    return [
        f"{finding.severity.upper()} {finding.name}, {span(finding)}",
        wrapped(f"{finding.sentence} ({sureness(finding)})"),
        wrapped(f"likely causes: {'; '.join(finding.causes)}"),
        wrapped(f"what to do: {finding.advice}"),
    ]


def wrapped(text: str, indent: str = "  ") -> str:
    """Text in lines of up to 100 characters."""
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False)
