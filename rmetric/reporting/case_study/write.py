"""A case study to its files."""

from __future__ import annotations

from pathlib import Path

import orjson

from rmetric.records import write_atomically
from rmetric.reporting.case_study.columns import held_out_frame, metrics_frame, to_csv
from rmetric.reporting.case_study.findings import CaseResults
from rmetric.reporting.case_study.summary import summary
from rmetric.reporting.case_study.tables import DETECTORS, RUNS, SCORES, detectors_table, runs_table, scores_table
from rmetric.reporting.figures import case_study as dashboard
from rmetric.reporting.figures.save import write as write_figure
from rmetric.reporting.figures.save import write_captions
from rmetric.reporting.formats import Table
from rmetric.reporting.formats import to_csv as table_to_csv
from rmetric.reporting.formats import write as write_table

METRICS, HELD_OUT, SUMMARY, CAPTIONS = "metrics.csv", "held_out.csv", "summary.json", "captions.md"


def write_results(results: CaseResults, out: Path, command: str) -> list[Table]:
    """Write everything that is made of a case study's logs to ``out``; returns the tables for the screen.

    ``summary.json`` comes last: where it is, everything else is.

    Parameters
    ----------
    results
        The case study.
    out
        Existing folder. Results of an earlier case study in it are replaced.
    command
        What was typed; it stands in the summary and the captions.
    """
    discard_results(out)
    tables = [runs_table(results), detectors_table(results)]
    for table in tables:
        write_table(table, out)
    write_atomically(out / f"{SCORES}.csv", table_to_csv(scores_table(results)).encode())
    write_atomically(out / METRICS, to_csv(metrics_frame(results)))
    write_atomically(out / HELD_OUT, to_csv(held_out_frame(results)))
    _write_figures(results, command, out)
    content = orjson.dumps(summary(results, command), option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY)
    write_atomically(out / SUMMARY, content + b"\n")
    return tables


def discard_results(out: Path) -> None:
    """Remove what :func:`write_results` made of an earlier case study; its logs are not touched."""
    names = (SUMMARY, METRICS, HELD_OUT, f"{SCORES}.csv", CAPTIONS, f"{RUNS}.*", f"{DETECTORS}.*", f"{dashboard.NAME}*")
    for pattern in names:
        for old in out.glob(pattern):
            old.unlink()


def _write_figures(results: CaseResults, command: str, out: Path) -> None:
    drawings = dashboard.draw(results)
    for drawing in drawings:
        write_figure(drawing, out)
    write_captions(drawings, command, out)
