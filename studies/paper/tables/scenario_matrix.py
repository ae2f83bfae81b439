"""Table 2: what was run, counted from the logs."""

from __future__ import annotations

from collections import Counter

import numpy as np

from rmetric.architectures import ARCHITECTURES
from rmetric.evaluation.evaluator import Evaluator
from rmetric.reporting.table import Cell, Column, Table
from studies import captions

SEVERITIES = ("low", "medium", "high")
KINDS = ("failed", "recovered", "clean", "censored", "incomplete")


def scenarios(ev: Evaluator) -> list[tuple[str, str, str]]:
    """(model type, fault, severity) of the logs: architectures as registered, faults as they come, controls last."""
    known = [profile.model_type for _, profile in ARCHITECTURES.items()]
    models = [*known, *dict.fromkeys(run.model_type for run in ev.study.runs if run.model_type not in known)]
    faults = list(dict.fromkeys(run.fault for run in ev.study.runs if run.fault != "NONE"))
    found = {(run.model_type, run.fault, run.severity) for run in ev.study.runs}

    def rank(scenario: tuple[str, str, str]) -> tuple[int, int, int, str]:
        model, fault, severity = scenario
        strength = SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)
        return models.index(model), faults.index(fault) if fault in faults else len(faults), strength, severity

    return sorted(found, key=rank)


def tables(ev: Evaluator) -> list[Table]:
    """One row an architecture, fault and severity, and one for all."""
    truths, rows = ev.timeline.truths, []
    for model, fault, severity in scenarios(ev):
        chosen = np.flatnonzero(ev.runs_where(model_type=model, fault=fault, severity=severity)).tolist()
        rows.append(_row(model, fault, severity, [truths[index] for index in chosen]))
    rows.append(_row("all", "all", "all", list(truths)))
    columns = [
        Column("architecture", "Architecture"),
        Column("fault", "Fault"),
        Column("severity", "Severity"),
        Column("runs", "Runs"),
        *(Column(kind, kind.capitalize()) for kind in KINDS),
        Column("incubation", "Incubation", digits=0),
    ]
    caption = (
        "Scenario matrix, counted from the logs. A run fails when its loss becomes non-finite, a worker is lost for "
        "good, or its held-out loss rises 5 % above its fault-free twin's for good; censored: an excess that began in "
        f"the last 50 steps. Incubation: median steps from onset to failure. {captions.runs(ev)}"
    )
    return [Table("table_2_scenario_matrix", "Table 2: Scenario matrix", caption, columns, rows)]


def _row(architecture: str, fault: str, severity: str, truths: list) -> dict[str, Cell]:  # type: ignore[type-arg]
    kinds = Counter(truth.kind for truth in truths)
    incubations = [truth.incubation for truth in truths if truth.incubation is not None]
    return {
        "architecture": architecture,
        "fault": fault,
        "severity": severity,
        "runs": len(truths),
        **{kind: kinds[kind] for kind in KINDS},
        "incubation": float(np.median(incubations)) if incubations else None,
    }
