"""Table 5: how much hangs on the threshold, and on each signal."""

from __future__ import annotations

import math

from rmetric.evaluation.evaluator import PAPER_THRESHOLDS, REFERENCE, Evaluator
from rmetric.evaluation.protocols import PROTOCOLS
from rmetric.evaluation.scores import Score
from rmetric.metric import RMetric
from rmetric.reporting.table import Cell, Column, Table
from studies import captions

THRESHOLDS = tuple(sorted({0.40, 0.45, 0.50, 0.70, 0.75, 0.80, *PAPER_THRESHOLDS}))


def tables(ev: Evaluator) -> list[Table]:
    """5: thresholds; 5b: ablation of the signals."""
    return [*([_thresholds(ev)] if REFERENCE in ev.detectors else []), _ablation(ev)]


def _thresholds(ev: Evaluator) -> Table:
    scores = (("precision", "Precision", 3), ("recall", "Recall", 3), ("f1", "F1", 3), ("mean_lead", "Mean lead", 0))
    frame = ev.sensitivity(THRESHOLDS)
    rows: list[dict[str, Cell]] = []
    for threshold in THRESHOLDS:
        row: dict[str, Cell] = {"threshold": threshold}
        for protocol in PROTOCOLS:
            found = frame[(frame["protocol"] == protocol) & (frame["threshold"] == threshold)].iloc[0]
            row |= {f"{key}_{protocol}": found[key] for key, _, _ in scores}
            if protocol == "strict":
                row["false_alarms_strict"] = found["false_alarms_per_1000"]
        rows.append(row)
    columns = [Column("threshold", "Threshold", 2)]
    for protocol in PROTOCOLS:
        columns += [
            Column(f"{key}_{protocol}", f"{title}, {protocol}", digits, protocol, interval=key == "f1")
            for key, title, digits in scores
        ]
    columns.append(Column("false_alarms_strict", "False alarms per 1,000 healthy steps", 3, "strict", interval=False))
    caption = (
        "R-Metric at other thresholds; 0.55, 0.56, 0.57, 0.60 and 0.65 occur in the author's files and their history. "
        f"All runs; lead in steps. {captions.BOTH} {captions.runs(ev)} {captions.interval(ev)}"
    )
    return Table("table_5_threshold", "Table 5: Threshold", caption, columns, rows, row_keys=("threshold",))


def _ablation(ev: Evaluator) -> Table:
    frame = ev.ablation
    rows: list[dict[str, Cell]] = []
    for variant in dict.fromkeys(frame["variant"]):
        row: dict[str, Cell] = {"variant": variant}
        for protocol in PROTOCOLS:
            found = frame[(frame["variant"] == variant) & (frame["protocol"] == protocol)]
            if not len(found):
                continue
            item = found.iloc[0]
            threshold = float(item["threshold"])
            row[f"weights_{protocol}"] = " / ".join(f"{weight:.2f}" for weight in item["weights"])
            row[f"published_{protocol}"] = item["published"]
            row[f"threshold_{protocol}"] = (
                Score.undefined("no run of the fit half failed") if math.isnan(threshold) else Score(threshold)
            )
            row[f"refitted_{protocol}"] = item["refitted"]
        rows.append(row)
    columns = [Column("variant", "Variant")]
    limit = RMetric.paper().threshold
    for protocol in PROTOCOLS:
        columns += [
            Column(f"weights_{protocol}", f"λ / σ² / ΔL, {protocol}", protocol=protocol),
            Column(f"published_{protocol}", f"F1 at {limit}, {protocol}", 3, protocol),
            Column(f"threshold_{protocol}", f"Fitted threshold, {protocol}", 3, protocol),
            Column(f"refitted_{protocol}", f"F1 at it, held out, {protocol}", 3, protocol),
        ]
    caption = (
        f"R-Metric without each of its signals; the other weights are scaled so that they sum to 1.25. F1 at {limit}: "
        "all runs. Fitted threshold: highest F1 on the fit half (odd repetition or seed), scored on the other half; "
        f"fitted weights: highest F1 on the fit half among all steps of 1/20. {captions.BOTH} All: {captions.runs(ev)} "
        f"Score half: {captions.runs(ev, ev.halves.score)} {captions.interval(ev)}"
    )
    return Table("table_5b_ablation", "Table 5b: Ablation", caption, columns, rows, row_keys=("variant",))
