"""One self-contained HTML page about one or more runs: tables that need no script, curves that need no network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

import rmetric
from rmetric.files import write_atomically
from rmetric.report.curves import buckets_for
from rmetric.report.panels import PANELS
from rmetric.report.reported import ReportedRun
from rmetric.report.tables import findings_table, numbers_table, remarks_table, runs_table

ASSETS = Path(__file__).with_name("assets")
SCRIPTS = ("uplot/uPlot.iife.min.js", "data.js", "theme.js", "marks.js", "chart.js", "view.js", "controls.js")
"""Parts of the script, in the order in which they stand in the page."""
STYLES = ("uplot/uPlot.min.css", "page.css")


def write_report(runs: Sequence[ReportedRun], path: Path) -> None:
    """Write the page, whole or not at all."""
    write_atomically(path, page_of(runs).encode())


def page_of(runs: Sequence[ReportedRun]) -> str:
    """The page as HTML.

    Whatever comes from a log is escaped, and the page's own policy lets no script run but the one that comes with this
    package, and nothing be loaded.
    """
    script = _joined(SCRIPTS)
    return _environment().get_template("page.html").render(
        title=f"Training report: {runs[0].name if len(runs) == 1 else f'{len(runs)} runs'}",
        verdict=_verdict(runs),
        several=len(runs) > 1,
        runs=runs_table(runs),
        findings=findings_table(runs),
        numbers=numbers_table(runs),
        remarks=remarks_table(runs),
        data=_data(runs),
        version=rmetric.__version__,
        style=Markup(_joined(STYLES)),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        licence=_asset("uplot/LICENSE"),
    )  # fmt: skip


def _verdict(runs: Sequence[ReportedRun]) -> str:
    if len(runs) == 1:
        verdict = runs[0].diagnosis.verdict
        return f"{verdict[:1].upper()}{verdict[1:]}."
    healthy = sum(run.diagnosis.healthy for run in runs)
    return f"{healthy} of {len(runs)} runs healthy."


def _data(runs: Sequence[ReportedRun]) -> dict[str, object]:
    """What the script draws."""
    drawn = {name for run in runs for name in run.curves}
    panels = [panel.to_dict() for panel in PANELS if any(name in drawn for name, _ in panel.curves)]
    return {"panels": panels, "runs": [run.to_dict(buckets_for(len(runs))) for run in runs]}


@cache
def _environment() -> Environment:
    return Environment(loader=FileSystemLoader(ASSETS), autoescape=True)


@cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _joined(names: Sequence[str]) -> str:
    return "\n".join(map(_asset, names))
