"""``summary.json``: what was run on what, what came out, and how each detector did; strict JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from rmetric import __version__
from rmetric.evaluation.protocols import PROTOCOLS
from rmetric.evaluation.scores import Score
from rmetric.records import SCHEMA_VERSION
from rmetric.reporting.case_study.findings import CaseResults
from rmetric.reporting.case_study.tables import detector_scores, healthy_steps
from rmetric.reporting.formats import Cell


def summary(results: CaseResults, command: str) -> dict[str, Any]:
    """All of it, for :func:`json.dumps`. An undefined value is ``null``, with its reason beside it in ``undefined``.

    Parameters
    ----------
    results
        The case study.
    command
        What was typed.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "package_version": __version__,
        "command": command,
        "trained_on": trained_on(results),
        "plan": plan(results),
        "description": {**results.study.description, "steps_per_s": steps_per_s(results)},
        "control_equals_twin": results.study.twin_matches_control,
        **plain({"r_metric_largest_difference": _largest_difference(results)}),
        "distinct_healthy_steps": healthy_steps(results),
        "healthy_steps_counted_in": None if results.carrier is None else results.runs[results.carrier].name,
        "runs": [_run(results, index) for index in range(len(results.runs))],
        "detectors": {name: _detector(results, name) for name in results.evaluator.detectors},
    }


def trained_on(results: CaseResults) -> str:
    """One line: which model, which text (of which Python, if it is the standard library's source)."""
    described = results.study.description
    model, text = described.get("model", "a model"), described.get("dataset", "an unknown text")
    parameters = described.get("parameters")
    size = f", {parameters / 1e6:,.2f} million parameters" if isinstance(parameters, int) else ""
    same = " Exact losses differ between Python versions, since the text does." if "standard library" in text else ""
    return f"{model}{size}, trained on: {text}.{same}"


def plan(results: CaseResults) -> dict[str, Any]:
    """The plan, with what it left to be decided."""
    made = results.study.plan
    return {
        **asdict(made),
        "plugins": len(made.plugins),  # their paths belong to this machine alone
        "rows": made.batch_rows,
        "length": made.sequence_length,
        "learning_rate": made.peak_learning_rate,
        "onset": made.first_disturbed,
    }


def steps_per_s(results: CaseResults) -> float | None:
    """Training steps of all runs together over the seconds they took; ``None`` if either is not known."""
    described = results.study.description
    steps, seconds = described.get("steps"), described.get("seconds")
    return round(steps / seconds, 1) if steps and seconds else None


def plain(cells: Mapping[str, Cell]) -> dict[str, Any]:
    """Cells as JSON values; an undefined one is ``null`` and has its reason under ``undefined``.

    >>> plain({"f1": Score.undefined("no run failed"), "warned": 0})
    {'f1': None, 'warned': 0, 'undefined': {'f1': 'no run failed'}}
    """
    values: dict[str, Any] = {}
    undefined: dict[str, str] = {}
    for key, cell in cells.items():
        if isinstance(cell, Score):
            values[key] = cell.value if math.isfinite(cell.value) else None
            if not cell.defined:
                undefined[key] = cell.reason
        else:
            values[key] = cell
    return values | ({"undefined": undefined} if undefined else {})


def _run(results: CaseResults, index: int) -> dict[str, Any]:
    run, truth = results.runs[index], results.truths[index]
    injection = run.config.get("fault_injection") or {}
    return {
        "name": run.name,
        "log": f"{run.name}.jsonl",
        "spelling": results.study.plan.faults[index],
        "fault": run.fault,
        "severity": injection.get("severity"),
        "parameters": injection.get("params") or {},
        "outcome": truth.kind,
        "reason": truth.reason,
        "onset": truth.onset,
        "failure_step": truth.failure_step,
        "records": len(run.observations),
        "first_alerts_as_logged": run.alerts,
    }


def _detector(results: CaseResults, name: str) -> dict[str, Any]:
    detector = results.evaluator.detectors[name]
    return {
        "title": detector.title,
        "causal": detector.causal,
        "threshold": float(detector.threshold),
        "gave_scores": name not in results.silent,
        **{protocol: plain(detector_scores(results, name, protocol)) for protocol in PROTOCOLS},
    }


def _largest_difference(results: CaseResults) -> Score:
    """Between R as the runs wrote it and R recomputed from their logs."""
    differences = [
        np.abs(run.verdicts["r_metric"] - np.asarray(value.r))
        for run, value in zip(results.runs, results.r_metric, strict=True)
        if "r_metric" in run.verdicts
    ]
    known = np.concatenate([*differences, np.empty(0)])
    known = known[~np.isnan(known)]
    return Score(float(known.max())) if len(known) else Score.undefined("the logs do not hold R")
