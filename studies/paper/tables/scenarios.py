"""Tables 2 and 4: what was run, what became of it, and which faults are caught."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from rmetric.architectures import ARCHITECTURES
from rmetric.evaluation.evaluator import REFERENCE, Evaluator
from rmetric.evaluation.protocols import PROTOCOLS, Protocol
from rmetric.evaluation.scores import Score
from rmetric.evaluation.truth import KINDS, Truth
from rmetric.faults import SEVERITIES
from rmetric.reporting.table import Cell, Column
from studies import captions
from studies.catalogue import Part, table


@table(
    "table_2_scenario_matrix",
    "Scenario matrix",
    "Scenario matrix, counted from the logs. A run fails when its loss becomes non-finite, a worker is lost for good, "
    "or its held-out loss rises 5 % above its fault-free twin's for good; censored: an excess that began in the last "
    "50 steps. Incubation: median steps from onset to failure. {runs}",
    [
        Column("architecture", "Architecture", leading=True),
        Column("fault", "Fault", leading=True),
        Column("severity", "Severity", leading=True),
        Column("runs", "Runs"),
        *(Column(kind, kind.capitalize()) for kind in KINDS),
        Column("incubation", "Incubation", digits=0),
    ],
)
def scenario_matrix(ev: Evaluator) -> Part:
    """One row an architecture, fault and severity, and one for all."""
    rows = [_scenario(ev, *scenario) for scenario in scenarios(ev)]
    return Part([*rows, _counted("all", "all", "all", ev.timeline.truths)], captions.facts(ev))


def scenarios(ev: Evaluator) -> list[tuple[str, str, str]]:
    """(model type, fault, severity) of the logs: architectures as registered, faults as they come, controls last."""
    known = [profile.model_type for _, profile in ARCHITECTURES.items()]
    models = [*known, *dict.fromkeys(run.model_type for run in ev.study.runs if run.model_type not in known)]
    faults = list(dict.fromkeys(run.fault for run in ev.study.runs if not run.is_control))
    found = {(run.model_type, run.fault, run.severity) for run in ev.study.runs}

    def rank(scenario: tuple[str, str, str]) -> tuple[int, int, int, str]:
        model, fault, severity = scenario
        return models.index(model), faults.index(fault) if fault in faults else len(faults), *_strength(severity)

    return sorted(found, key=rank)


def _strength(severity: str) -> tuple[int, str]:
    """By which severities are sorted: from low to high, unknown ones last."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES), severity


def _scenario(ev: Evaluator, model: str, fault: str, severity: str) -> dict[str, Cell]:
    return _counted(model, fault, severity, _truths(ev, model_type=model, fault=fault, severity=severity))


def _truths(ev: Evaluator, **wanted: str) -> list[Truth]:
    return [ev.timeline.truths[index] for index in np.flatnonzero(ev.runs_where(**wanted)).tolist()]


def _counted(architecture: str, fault: str, severity: str, truths: Sequence[Truth]) -> dict[str, Cell]:
    kinds = Counter(truth.kind for truth in truths)
    return {
        "architecture": architecture,
        "fault": fault,
        "severity": severity,
        "runs": len(truths),
        **{kind: kinds[kind] for kind in KINDS},  # type: ignore[index]
        "incubation": _incubation(truths),
    }


def _incubation(truths: Sequence[Truth]) -> float | None:
    """Median steps from onset to failure; ``None`` if no run failed."""
    steps = [truth.incubation for truth in truths if truth.incubation is not None]
    return float(np.median(steps)) if steps else None


@table(
    "table_4_fault_types",
    "By type of failure",
    "Recall by type of failure, all architectures, published thresholds. Baseline: the causal detector with the "
    "highest F1 under that protocol. {baselines} Absorbed: R-Metric's episodes during faults that healed. "
    f"{captions.BOTH} {{runs}} {{interval}}",
    [
        Column("fault", "Fault"),
        Column("severity", "Severity"),
        Column("failed", "Failed"),
        Column("recovered", "Recovered"),
        Column("incubation", "Median incubation (steps)", 0),
        *(
            column
            for protocol in PROTOCOLS
            for column in (
                Column(f"recall_{protocol}", f"Recall of R-Metric, {protocol}", 2, protocol),
                Column(f"lead_{protocol}", f"Median lead (steps), {protocol}", 0, protocol, interval=False),
                Column(f"baseline_{protocol}", f"Recall of baseline, {protocol}", 2, protocol),
            )
        ),
        Column("absorbed_strict", "Absorbed by R-Metric (episodes)", protocol="strict"),
    ],
    about=("fault", "severity"),
)
def fault_types(ev: Evaluator) -> Part:
    """One row a fault and severity, over all architectures."""
    baselines = {protocol: ev.best_baseline(protocol) for protocol in PROTOCOLS}
    rows: list[dict[str, Cell]] = []
    for fault in dict.fromkeys(run.fault for run in ev.study.runs if not run.is_control):
        severities = sorted({run.severity for run in ev.study.runs if run.fault == fault}, key=_strength)
        rows += [_fault_type(ev, fault, severity, baselines) for severity in severities]
    named = ", ".join(f"{name or 'none'} ({protocol})" for protocol, name in baselines.items())
    return Part(rows, {"baselines": f"Baselines: {named}.", **captions.facts(ev)})


def _fault_type(ev: Evaluator, fault: str, severity: str, baselines: Mapping[Protocol, str | None]) -> dict[str, Cell]:
    chosen, truths = ev.runs_where(fault=fault, severity=severity), _truths(ev, fault=fault, severity=severity)
    row: dict[str, Cell] = {
        "fault": fault,
        "severity": severity,
        "failed": sum(truth.kind == "failed" for truth in truths),
        "recovered": sum(truth.kind == "recovered" for truth in truths),
        "incubation": _incubation(truths),
    }
    missing = Score.undefined("that detector was not asked for")
    for protocol in PROTOCOLS:
        summary = ev.summary(REFERENCE, protocol, None, chosen) if REFERENCE in ev.detectors else {}
        row[f"recall_{protocol}"] = summary.get("recall", missing)
        row[f"lead_{protocol}"] = summary.get("median_lead", missing)
        name = baselines[protocol]
        row[f"baseline_{protocol}"] = ev.summary(name, protocol, None, chosen)["recall"] if name else missing
    if REFERENCE in ev.detectors:
        row["absorbed_strict"] = int(ev.counts(REFERENCE, "strict").absorbed[chosen].sum())
    return row
