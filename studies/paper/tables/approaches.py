"""Table 1: the approaches that are compared."""

from __future__ import annotations

from rmetric.evaluation.evaluator import Evaluator
from rmetric.reporting.table import Cell, Column, Table
from studies import captions


def tables(ev: Evaluator) -> list[Table]:
    """From the registry's metadata."""
    rows: list[dict[str, Cell]] = [
        {
            "detector": name,
            "title": detector.title,
            "reads": ", ".join(detector.reads),
            "causal": "yes" if detector.causal else "no",
            "threshold": float(detector.threshold),
            "source": detector.source or "–",
        }
        for name, detector in ev.detectors.items()
    ]
    columns = [
        Column("detector", "Detector"),
        Column("title", "Approach"),
        Column("reads", "Signals read"),
        Column("causal", "Causal"),
        Column("threshold", "Threshold", digits=2),
        Column("source", "Source"),
    ]
    caption = (
        "Approaches. Each alerts above its threshold; causal: the score of a record depends on that record and earlier "
        "ones only, so that an operator could have had it."
    )
    title = "Table 1: Approaches"
    return [Table("table_1_approaches", title, caption, columns, rows, captions.unmeasured(ev), ("detector",))]
