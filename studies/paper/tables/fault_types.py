"""Table 4: which faults are caught."""

from __future__ import annotations

import numpy as np

from rmetric.evaluation.evaluator import REFERENCE, Evaluator
from rmetric.evaluation.protocols import PROTOCOLS
from rmetric.evaluation.scores import Score
from rmetric.reporting.table import Cell, Column, Table
from studies import captions
from studies.paper.tables.scenario_matrix import SEVERITIES


def tables(ev: Evaluator) -> list[Table]:
    """One row a fault and severity, over all architectures."""
    baselines = {protocol: ev.best_baseline(protocol) for protocol in PROTOCOLS}
    reference = REFERENCE if REFERENCE in ev.detectors else None
    rows: list[dict[str, Cell]] = []
    for fault in dict.fromkeys(run.fault for run in ev.study.runs if run.fault != "NONE"):
        found = {run.severity for run in ev.study.runs if run.fault == fault}
        ordered = [*(item for item in SEVERITIES if item in found), *sorted(found - set(SEVERITIES))]
        rows += [_row(ev, fault, severity, reference, baselines) for severity in ordered]
    columns = [
        Column("fault", "Fault"),
        Column("severity", "Severity"),
        Column("failed", "Failed"),
        Column("recovered", "Recovered"),
        Column("incubation", "Median incubation (steps)", 0),
    ]
    for protocol in PROTOCOLS:
        best = baselines[protocol] or "no baseline"
        columns += [
            Column(f"recall_{protocol}", f"Recall of R-Metric, {protocol}", 2, protocol),
            Column(f"lead_{protocol}", f"Median lead (steps), {protocol}", 0, protocol, interval=False),
            Column(f"baseline_{protocol}", f"Recall of {best}, {protocol}", 2, protocol),
        ]
    columns.append(Column("absorbed_strict", "Absorbed by R-Metric (episodes)", protocol="strict"))
    caption = (
        "Recall by type of failure, all architectures, published thresholds. Baseline: the causal detector with the "
        f"highest F1 under that protocol. Absorbed: R-Metric's episodes during faults that healed. {captions.BOTH} "
        f"{captions.runs(ev)} {captions.interval(ev)}"
    )
    title, keys = "Table 4: By type of failure", ("fault", "severity")
    return [Table("table_4_fault_types", title, caption, columns, rows, row_keys=keys)]


def _row(ev: Evaluator, fault: str, severity: str, reference: str | None, baselines) -> dict[str, Cell]:  # type: ignore[no-untyped-def]
    chosen = ev.runs_where(fault=fault, severity=severity)
    truths = [ev.timeline.truths[index] for index in np.flatnonzero(chosen).tolist()]
    incubations = [truth.incubation for truth in truths if truth.incubation is not None]
    row: dict[str, Cell] = {
        "fault": fault,
        "severity": severity,
        "failed": sum(truth.kind == "failed" for truth in truths),
        "recovered": sum(truth.kind == "recovered" for truth in truths),
        "incubation": float(np.median(incubations)) if incubations else None,
    }
    for protocol in PROTOCOLS:
        missing = Score.undefined("that detector was not asked for")
        summary = ev.summary(reference, protocol, None, chosen) if reference else {}
        row[f"recall_{protocol}"] = summary.get("recall", missing)
        row[f"lead_{protocol}"] = summary.get("median_lead", missing)
        name = baselines[protocol]
        row[f"baseline_{protocol}"] = ev.summary(name, protocol, None, chosen)["recall"] if name else missing
    if reference:
        row["absorbed_strict"] = int(ev.counts(reference, "strict").absorbed[chosen].sum())
    return row
