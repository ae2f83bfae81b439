"""Table 3: all detectors under both protocols, and what the strict one adds."""

from __future__ import annotations

import math

import numpy as np

from rmetric.evaluation.evaluator import REFERENCE, Evaluator
from rmetric.evaluation.protocols import PROTOCOLS
from rmetric.evaluation.scores import Score, false_alarm_bound, recall_at_lead
from rmetric.reporting.table import Cell, Column, Table
from studies import captions

SCORES = (
    ("precision", "Precision", 3),
    ("recall", "Recall", 3),
    ("f1", "F1", 3),
    ("mean_lead", "Mean lead (steps)", 0),
    ("lead_min", "Mean lead (min)", 1),
)

KEYS = ("detector",)
REQUIRED_LEADS = (1, 10, 50, 100, 255, 500)
"""Steps; 255 is the paper's mean lead."""


def tables(ev: Evaluator) -> list[Table]:
    """3: side by side; 3b: false alarms and comparison; 3c: fitted to a false-alarm budget; 3d: recall by lead."""
    return [_side_by_side(ev), _strict(ev), _budget(ev), _by_required_lead(ev)]


def _side_by_side(ev: Evaluator) -> Table:
    rows: list[dict[str, Cell]] = []
    for name, detector in ev.detectors.items():
        row: dict[str, Cell] = {"detector": name, "threshold": float(detector.threshold)}
        for protocol in PROTOCOLS:
            summary = ev.summary(name, protocol)
            row |= {f"{key}_{protocol}": summary[key] for key, _, _ in SCORES}
            if protocol == "strict":
                row["false_alarms_per_1000"] = summary["false_alarms_per_1000"]
        rows.append(row)
    columns = [Column("detector", "Detector"), Column("threshold", "Threshold", digits=2)]
    for key, title, digits in SCORES:
        columns += [Column(f"{key}_{p}", f"{title}, {p}", digits, p) for p in PROTOCOLS]
    columns.append(Column("false_alarms_per_1000", "False alarms per 1,000 healthy steps", 3, "strict"))
    caption = (
        f"Detectors at their published thresholds: nothing is fitted, all runs are scored. {captions.BOTH} "
        f"{captions.runs(ev)} {captions.interval(ev)}"
    )
    return Table("table_3_detectors", "Table 3: Detectors", caption, columns, rows, captions.unmeasured(ev), KEYS)


def _strict(ev: Evaluator) -> Table:
    rows: list[dict[str, Cell]] = []
    for name in ev.detectors:
        counts, summary = ev.counts(name, "strict"), ev.summary(name, "strict")
        row: dict[str, Cell] = {
            "detector": name,
            "true_positives": int(counts.tp.sum()),
            "false_negatives": int(counts.fn.sum()),
            "false_alarms": int(counts.fp.sum()),
            "false_alarms_per_1000": summary["false_alarms_per_1000"],
            "upper_bound": false_alarm_bound(counts),
            "absorbed": int(counts.absorbed.sum()),
            "median_lead": summary["median_lead"],
            "share_of_warning_time": summary["share_of_warning_time"],
            "average_precision": ev.curve(name, "strict").average_precision(),
        }
        for protocol in PROTOCOLS:
            row[f"f1_less_{protocol}"] = None if name == REFERENCE else _less_reference(ev, name, protocol)
        rows.append(row)
    columns = [
        Column("detector", "Detector"),
        Column("true_positives", "TP (runs)", protocol="strict"),
        Column("false_negatives", "FN (runs)", protocol="strict"),
        Column("false_alarms", "FP (episodes)", protocol="strict"),
        Column("false_alarms_per_1000", "False alarms per 1,000 healthy steps", 3, "strict"),
        Column("upper_bound", "Upper bound", 3, "strict"),
        Column("absorbed", "Absorbed (episodes)", protocol="strict"),
        Column("median_lead", "Median lead (steps)", 0, "strict"),
        Column("share_of_warning_time", "Share of warning time used", 3, "strict"),
        Column("average_precision", "Average precision", 3, "strict"),
        Column("f1_less_paper", "F1 less R-Metric's, paper", 3, "paper"),
        Column("f1_less_strict", "F1 less R-Metric's, strict", 3, "strict"),
    ]
    healthy = int(ev.timeline.healthy_steps.sum())
    caption = (
        f"What the strict protocol adds, at published thresholds, all runs. {ev.warnable} of the failed "
        f"runs have a record between onset and failure: nobody could warn the others. {healthy:,} healthy steps; upper "
        "bound: exact one-sided 95 % Poisson bound of the false-alarm rate, which takes false alarms as independent. "
        "Absorbed: episodes during faults that healed, counted neither way. Share of warning time used: lead, of all "
        "steps between onset and failure. Average precision: over all thresholds. Last columns: difference of F1 to "
        f"the R-Metric, paired bootstrap. {captions.runs(ev)} {captions.interval(ev)}"
    )
    title = "Table 3b: False alarms, warning time, comparison"
    return Table("table_3b_strict", title, caption, columns, rows, row_keys=KEYS)


def _less_reference(ev: Evaluator, name: str, protocol) -> Score:  # type: ignore[no-untyped-def]
    if REFERENCE not in ev.detectors:
        return Score.undefined("the R-Metric was not asked for")
    return ev.compare("f1", ev.counts(name, protocol), ev.counts(REFERENCE, protocol))


def _budget(ev: Evaluator) -> Table:
    rows: list[dict[str, Cell]] = []
    half = ev.halves.score
    reference = ev.budgeted(REFERENCE) if REFERENCE in ev.detectors else None
    for name in ev.detectors:
        fitted = ev.budgeted(name)
        row: dict[str, Cell] = {
            "detector": name,
            "threshold": Score.undefined(fitted.reason) if math.isnan(fitted.threshold) else Score(fitted.threshold),
        }
        keys = ("recall", "precision", "f1", "mean_lead", "false_alarms_per_1000")
        if fitted.counts is None:
            row |= dict.fromkeys((*keys, "upper_bound"), Score.undefined(fitted.reason))
        else:
            summary = ev.summary_of(fitted.counts, half)
            row |= {key: summary[key] for key in keys}
            row["upper_bound"] = false_alarm_bound(fitted.counts.of(half & fitted.counts.counted))
        if name != REFERENCE:
            both = fitted.counts is not None and reference is not None and reference.counts is not None
            row["f1_less"] = (
                ev.compare("f1", fitted.counts, reference.counts, half)  # type: ignore[arg-type, union-attr]
                if both
                else Score.undefined(fitted.reason or "the R-Metric has no fitted threshold")
            )
        rows.append(row)
    columns = [
        Column("detector", "Detector"),
        Column("threshold", "Fitted threshold", 3, "strict"),
        Column("recall", "Recall", 3, "strict"),
        Column("precision", "Precision", 3, "strict"),
        Column("f1", "F1", 3, "strict"),
        Column("mean_lead", "Mean lead (steps)", 0, "strict"),
        Column("false_alarms_per_1000", "False alarms per 1,000 healthy steps", 3, "strict"),
        Column("upper_bound", "Upper bound", 3, "strict"),
        Column("f1_less", "F1 less R-Metric's", 3, "strict"),
    ]
    caption = (
        "Strict protocol at a budget of one false alarm per 10,000 healthy steps. The threshold with the highest "
        "recall within the budget is fitted on the half of the runs with odd repetition (or seed) and scored on the "
        f"other half, where the budget may be missed. Score half: {captions.runs(ev, half)} {captions.interval(ev)}"
    )
    title = "Table 3c: At a false-alarm budget, held out"
    return Table("table_3c_budget", title, caption, columns, rows, row_keys=KEYS)


def _by_required_lead(ev: Evaluator) -> Table:
    required = np.array(REQUIRED_LEADS, dtype=np.float64)
    rows: list[dict[str, Cell]] = []
    for name in ev.detectors:
        recalls = recall_at_lead(ev.counts(name, "strict"), required)
        row: dict[str, Cell] = {"detector": name}
        for lead, recall in zip(REQUIRED_LEADS, recalls.tolist(), strict=True):
            row[f"recall_{lead}"] = Score.undefined("no run failed") if math.isnan(recall) else Score(recall)
        rows.append(row)
    columns = [Column("detector", "Detector")]
    columns += [Column(f"recall_{lead}", f"Recall, lead ≥ {lead}", 3, "strict") for lead in REQUIRED_LEADS]
    caption = (
        "Strict protocol: share of the failed runs that were warned at least so many steps before the failure, at "
        f"published thresholds. {captions.runs(ev)}"
    )
    title = "Table 3d: Recall by required lead"
    return Table("table_3d_required_lead", title, caption, columns, rows, row_keys=KEYS)
