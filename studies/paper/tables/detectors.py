"""Tables 1 and 3: the detectors, their scores under both protocols, and what the strict one adds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rmetric.evaluation.evaluator import NO_RECORD, REFERENCE, Evaluator
from rmetric.evaluation.protocols import PROTOCOLS, Protocol
from rmetric.evaluation.scores import Score, false_alarm_bound, recall_at_lead
from rmetric.reporting.table import Cell, Column
from studies import captions
from studies.catalogue import Part, table

DETECTOR = Column("detector", "Detector")
SCORES = (
    ("precision", "Precision", 3),
    ("recall", "Recall", 3),
    ("f1", "F1", 3),
    ("mean_lead", "Mean lead (steps)", 0),
    ("lead_min", "Mean lead (min)", 3),  # a step of a tiny model takes 20 ms
)
FALSE_ALARMS = Column("false_alarms_per_1000", "False alarms per 1,000 healthy steps", 3, "strict")
UPPER_BOUND = Column("upper_bound", "Upper bound", 3, "strict")
REQUIRED_LEADS = (1, 10, 50, 100, captions.PAPER_LEAD, 500)
"""Steps; the paper's mean lead among them."""


@table(
    "table_1_approaches",
    "Approaches",
    "Approaches. Each alerts above its threshold; causal: the score of a record depends on that record and earlier "
    "ones only, so that an operator could have had it.",
    [
        DETECTOR,
        Column("title", "Approach"),
        Column("reads", "Signals read"),
        Column("causal", "Causal"),
        Column("threshold", "Threshold", digits=2),
        Column("source", "Source"),
    ],
    about=("detector",),
    shared=True,
)
def approaches(ev: Evaluator) -> Part:
    """One row a detector, from the registry's metadata."""
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
    return Part(rows, notes=captions.unmeasured(ev))


@table(
    "table_3_detectors",
    "Detectors",
    "Detectors at their published thresholds: nothing is fitted, all runs are scored. "
    f"{captions.BOTH} {{runs}} {{interval}}",
    [
        DETECTOR,
        Column("threshold", "Threshold", digits=2),
        *(Column(f"{key}_{p}", f"{title}, {p}", digits, p) for key, title, digits in SCORES for p in PROTOCOLS),
        FALSE_ALARMS,
    ],
    about=("detector",),
)
def detectors(ev: Evaluator) -> Part:
    """One row a detector, both protocols side by side."""
    rows: list[dict[str, Cell]] = []
    for name, detector in ev.detectors.items():
        row: dict[str, Cell] = {"detector": name, "threshold": float(detector.threshold)}
        for protocol in PROTOCOLS:
            summary = ev.summary(name, protocol)
            row |= {f"{key}_{protocol}": summary[key] for key, _, _ in SCORES}
        rows.append(row | {FALSE_ALARMS.key: ev.summary(name, "strict")[FALSE_ALARMS.key]})
    return Part(rows, captions.facts(ev), captions.unmeasured(ev))


@table(
    "table_3b_strict",
    "False alarms, warning time, comparison",
    "What the strict protocol adds, at published thresholds, all runs. {warnable} {healthy} Upper bound: exact "
    "one-sided 95 % Poisson bound of the false-alarm rate, which takes false alarms as independent. Absorbed: episodes "
    "during faults that healed, counted neither way. Share of warning time used: lead, of all steps between onset and "
    "failure. Average precision: over all thresholds. Last columns: difference of F1 to the R-Metric, paired "
    "bootstrap. {runs} {interval}",
    [
        DETECTOR,
        Column("true_positives", "TP (runs)", protocol="strict"),
        Column("false_negatives", "FN (runs)", protocol="strict"),
        Column("false_alarms", "FP (episodes)", protocol="strict"),
        FALSE_ALARMS,
        UPPER_BOUND,
        Column("absorbed", "Absorbed (episodes)", protocol="strict"),
        Column("median_lead", "Median lead (steps)", 0, "strict"),
        Column("share_of_warning_time", "Share of warning time used", 3, "strict"),
        Column("average_precision", "Average precision", 3, "strict"),
        *(Column(f"f1_less_{p}", f"F1 less R-Metric's, {p}", 3, p) for p in PROTOCOLS),
    ],
    about=("detector",),
)
def strict(ev: Evaluator) -> Part:
    """One row a detector: counts, false alarms, warning time, and the difference to the R-Metric."""
    rows: list[dict[str, Cell]] = []
    for name in ev.detectors:
        if name in ev.silent:
            rows.append(_undefined(name, strict.columns))
            continue
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
    healthy = int(ev.timeline.healthy_steps.sum())
    facts = {
        "warnable": f"{ev.warnable} of the failed runs have a record between onset and failure; no detector could warn "
        "the others.",
        "healthy": f"{healthy:,} healthy steps.",
    }
    return Part(rows, {**facts, **captions.facts(ev)})


def _undefined(name: str, columns: Sequence[Column]) -> dict[str, Cell]:
    """Row of a detector that judges nothing."""
    return {**{column.key: NO_RECORD for column in columns}, DETECTOR.key: name}


def _less_reference(ev: Evaluator, name: str, protocol: Protocol) -> Score:
    if REFERENCE not in ev.detectors:
        return Score.undefined("the R-Metric was not asked for")
    if REFERENCE in ev.silent:
        return NO_RECORD
    return ev.compare("f1", ev.counts(name, protocol), ev.counts(REFERENCE, protocol))


@table(
    "table_3c_budget",
    "At a false-alarm budget, held out",
    "Strict protocol at a budget of one false alarm per 10,000 healthy steps. The threshold with the highest recall "
    "within the budget is fitted on the half of the runs with odd repetition (or seed) and scored on the other half, "
    "where the budget may be missed. Figure 4 and Table 9 fit the highest F1 within it instead, and have other "
    "thresholds. {score_half} {interval}",
    [
        DETECTOR,
        Column("threshold", "Fitted threshold", 3, "strict"),
        Column("recall", "Recall", 3, "strict"),
        Column("precision", "Precision", 3, "strict"),
        Column("f1", "F1", 3, "strict"),
        Column("mean_lead", "Mean lead (steps)", 0, "strict"),
        FALSE_ALARMS,
        UPPER_BOUND,
        Column("f1_less", "F1 less R-Metric's", 3, "strict"),
    ],
    about=("detector",),
)
def budget(ev: Evaluator) -> Part:
    """One row a detector, at the threshold of highest recall within the budget."""
    return Part([_within_budget(ev, name) for name in ev.detectors], captions.facts(ev))


def _within_budget(ev: Evaluator, name: str) -> dict[str, Cell]:
    fitted, half = ev.budgeted(name), ev.halves.score
    missing = Score.undefined(fitted.reason)
    row: dict[str, Cell] = {
        "detector": name,
        "threshold": missing if math.isnan(fitted.threshold) else Score(fitted.threshold),
    }
    keys = ("recall", "precision", "f1", "mean_lead", "false_alarms_per_1000")
    if fitted.counts is None:
        row |= dict.fromkeys((*keys, "upper_bound"), missing)
    else:
        summary = ev.summary_of(fitted.counts, half)
        row |= {key: summary[key] for key in keys}
        row["upper_bound"] = false_alarm_bound(fitted.counts.of(half & fitted.counts.counted))
    if name == REFERENCE:
        return row
    reference = ev.budgeted(REFERENCE).counts if REFERENCE in ev.detectors else None
    if fitted.counts is None or reference is None:
        row["f1_less"] = Score.undefined(fitted.reason or "the R-Metric has no fitted threshold")
    else:
        row["f1_less"] = ev.compare("f1", fitted.counts, reference, half)
    return row


@table(
    "table_3d_required_lead",
    "Recall by required lead",
    "Strict protocol: share of the failed runs that were warned at least so many steps before the failure, at "
    f"published thresholds. {captions.PAPER_LEAD} steps are the paper's mean lead. {{runs}}",
    [DETECTOR, *(Column(f"recall_{lead}", f"Recall, lead ≥ {lead}", 3, "strict") for lead in REQUIRED_LEADS)],
    about=("detector",),
)
def required_lead(ev: Evaluator) -> Part:
    """One row a detector, one column a lead."""
    required = np.array(REQUIRED_LEADS, dtype=np.float64)
    rows: list[dict[str, Cell]] = []
    for name in ev.detectors:
        row: dict[str, Cell] = {"detector": name}
        if name in ev.silent:
            rows.append(_undefined(name, required_lead.columns))
            continue
        for lead, recall in zip(REQUIRED_LEADS, recall_at_lead(ev.counts(name, "strict"), required), strict=True):
            row[f"recall_{lead}"] = Score.undefined("no run failed") if math.isnan(recall) else Score(float(recall))
        rows.append(row)
    return Part(rows, captions.facts(ev))
