"""A mechanism study to its files."""

from __future__ import annotations

from pathlib import Path

import orjson

from rmetric.records import write_atomically
from rmetric.reporting.figures.save import write as write_figure
from rmetric.reporting.figures.save import write_captions
from rmetric.reporting.formats import Table, to_csv
from rmetric.reporting.formats import write as write_table
from rmetric.reporting.mechanism import figures, heat_map
from rmetric.reporting.mechanism.findings import KINDS, MechanismResults
from rmetric.reporting.mechanism.tables import false_alarms_table, long_table, signature_table

SUMMARY = "summary.json"
MADE = ("signature*", "false_alarms.*", "signals_*", "captions.md", SUMMARY)
"""Patterns of what is written."""


def write_results(results: MechanismResults, out: Path, command: str) -> list[Table]:
    """Write tables, figures and summary to ``out``; returns the tables for the screen. The summary comes last."""
    for pattern in MADE:
        for old in out.glob(pattern):
            old.unlink()
    tables = [*(signature_table(results, kind) for kind in KINDS), false_alarms_table(results)]
    for table in tables:
        write_table(table, out)
    long = long_table(results)
    write_atomically(out / f"{long.name}.csv", to_csv(long).encode())
    drawings = [heat_map.draw(results), *figures.draw_all(results)]
    for drawing in drawings:
        write_figure(drawing, out)
    write_captions(drawings, command, out)
    content = orjson.dumps(summary(results, command), option=orjson.OPT_INDENT_2)
    write_atomically(out / SUMMARY, content + b"\n")
    return tables


def summary(results: MechanismResults, command: str) -> dict[str, object]:
    """What was run, and the false alarms; the signatures stand in ``signature_long.csv``."""
    return {
        "command": command,
        "runs": len(results.runs),
        "seeds": len(set(results.repetition.tolist())),
        "healthy_steps": results.healthy_steps,
        "outcomes": {run.name: truth.kind for run, truth in zip(results.runs, results.truths, strict=True)},
        "detectors": {
            name: {
                "threshold": float(detector.threshold),
                "fitted_thresholds": {str(seed): limit for seed, limit in results.fitted[name].items()},
                **{f"false_alarms_{kind}": results.false_alarms(name, kind).episodes for kind in KINDS},
            }
            for name, detector in results.detectors.items()
        },
    }
