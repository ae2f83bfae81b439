"""The results of a case study: tables, CSV files, a JSON summary and a dashboard."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from rmetric import __version__
from rmetric.evaluation.evaluator import REFERENCE
from rmetric.evaluation.protocols import PROTOCOLS, Protocol
from rmetric.evaluation.scores import Score, false_alarm_bound, summarise
from rmetric.files import write_atomically
from rmetric.log_writer import SCHEMA_VERSION
from rmetric.reporting.style import write_figures
from rmetric.reporting.table import Cell, Column, Table
from rmetric.reporting.table import to_csv as table_to_csv
from rmetric.reporting.table import write as write_table
from studies import captions
from studies.case_study import dashboard
from studies.case_study.findings import SILENT, CaseResults, Finding, held_out_frame, metrics_frame, to_csv

RUNS, DETECTORS, SCORES = "runs", "detectors", "scores"
"""Names of the tables, and of their files."""
NO_INTERVALS = (
    "No intervals: the runs share their seed and everything before the onset, so they are cases and no sample."
)


SCORED = (
    "warned", "mean_lead", "false_alarms", "false_alarms_per_1000", "upper_bound", "absorbed", "precision",
    "recall", "f1",
)  # fmt: skip
"""Of a detector, over all runs that are counted."""


def runs_table(results: CaseResults) -> Table:
    """One row a run: what happened, what the R-Metric made of it, and who warned first."""
    rows: list[dict[str, Cell]] = []
    for index, (title, truth) in enumerate(zip(results.titles, results.truths, strict=True)):
        paper = results.finding(index, REFERENCE, "paper")
        strict = results.finding(index, REFERENCE, "strict")
        rows.append(
            {
                "run": title,
                "outcome": truth.kind,
                "reason": truth.reason,
                "onset": truth.onset,
                "failure": truth.failure_step,
                "alert_paper": paper.step,
                "lead_paper": paper.lead,
                "false_paper": paper.false_alarms,
                "warning_strict": strict.step if strict.verdict == "warned" else strict.lead,
                "lead_strict": strict.lead,
                "false_strict": strict.false_alarms,
                "first_strict": _first_to_warn(results, index),
            }
        )
    columns = [
        Column("run", "Run"),
        Column("outcome", "Outcome"),
        Column("reason", "Reason"),
        Column("onset", "Onset"),
        Column("failure", "Failure"),
        Column("alert_paper", "Alert, paper", 0, "paper"),
        Column("lead_paper", "Lead, paper", 0, "paper"),
        Column("warning_strict", "Warning, strict", 0, "strict"),
        Column("lead_strict", "Lead, strict", 0, "strict"),
        Column("false_paper", "False alarms, paper", 0, "paper"),
        Column("false_strict", "False alarms, strict", 0, "strict"),
        Column("first_strict", "First to warn, strict", 0, "strict"),
    ]
    caption = (
        "Real runs that were forked from one healthy run and differ in the fault alone. Onset, failure, alert, warning "
        "and lead in steps. Alert, warning, lead and false alarms are those of the R-Metric in the paper's setting; "
        "first to warn: the causal detector with the earliest warning, and its lead. "
        f"{captions.BOTH} {_counted(results)}"
    )
    return Table(RUNS, "Case study: the runs, and the R-Metric in them", caption, columns, rows, _truth_notes(results))


def detectors_table(results: CaseResults) -> Table:
    """One row a detector: failed runs warned, lead, false alarms, under both protocols side by side."""
    ev = results.evaluator
    rows: list[dict[str, Cell]] = []
    for name, detector in ev.detectors.items():
        row: dict[str, Cell] = {
            "detector": detector.title,
            "kind": "causal" if detector.causal else "whole run",
            "threshold": float(detector.threshold),
        }
        for protocol in PROTOCOLS:
            row |= {f"{key}_{protocol}": cell for key, cell in detector_scores(results, name, protocol).items()}
        rows.append(row)
    columns = [Column("detector", "Detector"), Column("kind", "Kind"), Column("threshold", "Threshold", 2)]
    columns += [Column(f"warned_{p}", f"Warned, {p}", 0, p) for p in PROTOCOLS]
    columns += [Column(f"mean_lead_{p}", f"Mean lead, {p}", 0, p) for p in PROTOCOLS]
    columns += [
        Column("false_alarms_paper", "False alarms, paper", 0, "paper"),
        Column("false_alarms_strict", "False alarms, strict", 0, "strict"),
        Column("false_alarms_per_1000_strict", "Per 1,000 steps", 2, "strict"),
        Column("upper_bound_strict", "Upper bound", 2, "strict"),
        Column("absorbed_strict", "Absorbed, strict", 0, "strict"),
    ]
    columns += [Column(f"f1_{p}", f"F1, {p}", 3, p) for p in PROTOCOLS]
    caption = (
        "All detectors at their published thresholds; nothing is fitted. Kind, whole run: it sees the future of the "
        "run that it judges, and no operator could have had it. Warned: failed runs with a warning. Mean lead in "
        "steps, over those. False alarms: runs (paper), episodes in distinct healthy steps (strict), the latter per "
        "1,000 of these steps with the exact one-sided 95 % upper bound. Absorbed: episodes during faults that healed, "
        f"counted neither way. {captions.BOTH} {_counted(results)} {NO_INTERVALS}"
    )
    return Table(DETECTORS, "Case study: detectors", caption, columns, rows, captions.unmeasured(ev))


def scores_table(results: CaseResults) -> Table:
    """The long table, for programs: one row a run, detector and protocol."""
    index_of = {run.name: index for index, run in enumerate(results.runs)}
    rows = [_long_row(results, index_of[finding.run], finding) for finding in results.findings]
    keys = (
        "run", "fault", "outcome", "reason", "onset", "failure_step", "detector", "causal", "threshold", "protocol",
        "verdict", "alert_step", "lead_steps", "false_alarms", "absorbed", "healthy_steps",
    )  # fmt: skip
    caption = f"Every detector in every run under both protocols. {captions.BOTH}"
    return Table(SCORES, "Case study: scores", caption, [Column(key, key) for key in keys], rows)


def detector_scores(results: CaseResults, name: str, protocol: Protocol) -> dict[str, Cell]:
    """Scores of a detector over all runs that are counted: :data:`SCORED`, and how many of the runs failed.

    One that gave no score at all was not quiet: all is undefined.
    """
    counts = results.evaluator.counts(name, protocol)
    counted = counts.of(counts.counted)
    summary = summarise(counted)
    failed = int((counted.tp + counted.fn).sum())
    if name in results.evaluator.silent:
        return {**dict.fromkeys(SCORED, Score.undefined(SILENT)), "failed": failed}
    return {
        "warned": int(counted.tp.sum()) if failed else Score.undefined("no run failed"),
        "failed": failed,
        "mean_lead": summary["mean_lead"],
        "false_alarms": int(counted.fp.sum()),
        "false_alarms_per_1000": summary["false_alarms_per_1000"],
        "upper_bound": false_alarm_bound(counted),
        "absorbed": int(counted.absorbed.sum()),
        "precision": summary["precision"],
        "recall": summary["recall"],
        "f1": summary["f1"],
    }


def healthy_steps(results: CaseResults) -> int:
    """Distinct healthy steps of all runs."""
    return int(results.evaluator.timeline.healthy_steps.sum())


def _long_row(results: CaseResults, index: int, finding: Finding) -> dict[str, Cell]:
    truth, detector = results.truths[index], results.evaluator.detectors[finding.detector]
    return {
        "run": finding.run,
        "fault": results.study.plan.faults[index],
        "outcome": truth.kind,
        "reason": truth.reason,
        "onset": truth.onset,
        "failure_step": truth.failure_step,
        "detector": finding.detector,
        "causal": int(detector.causal),
        "threshold": float(detector.threshold),
        "protocol": finding.protocol,
        "verdict": finding.verdict,
        "alert_step": whole(finding.step),
        "lead_steps": whole(finding.lead),
        "false_alarms": whole(finding.false_alarms),
        "absorbed": finding.absorbed,
        "healthy_steps": finding.healthy_steps,
    }


def whole(score: Score) -> Any:
    """A count or step as a whole number; undefined ones as they are, with their reason."""
    return int(score.value) if score.defined else score


def _first_to_warn(results: CaseResults, index: int) -> Cell:
    truth = results.truths[index]
    if truth.kind != "failed" or truth.failure_step is None:
        return None
    names, step = results.earliest_warning(index)
    if step is None:
        return "nobody"
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more}: {truth.failure_step - step:,}"


def _counted(results: CaseResults) -> str:
    ev = results.evaluator
    failed = int(ev.timeline.failed.sum())
    could = f" {ev.warnable} of the {failed} failed runs could be warned at all: they have a record in between."
    return f"{captions.runs(ev)} Distinct healthy steps: {healthy_steps(results):,}.{could if failed else ''}"


def _truth_notes(results: CaseResults) -> list[str]:
    """Note on how far the truth about these runs can be trusted."""
    agrees = results.study.twin_matches_control
    return [
        {
            True: "The control, which the monitor watched, and the twin, which it did not, agree to the last bit.",
            False: "The control and the twin differ: on this device equal runs are not equal to the last bit.",
            None: "There is no control among the runs (NONE): the healthy steps are those before the onset.",
        }[agrees]
    ]


def summary(results: CaseResults, command: str) -> dict[str, Any]:
    """All of it, for :func:`json.dumps`. An undefined value is ``null``, with its reason beside it in ``undefined``."""
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
    return {
        "name": run.name,
        "log": f"{run.name}.jsonl",
        "spelling": results.study.plan.faults[index],
        "fault": run.fault,
        "severity": run.injection.get("severity"),
        "parameters": run.injection.get("params") or {},
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
        "gave_scores": name not in results.evaluator.silent,
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


METRICS, HELD_OUT, SUMMARY, CAPTIONS = "metrics.csv", "held_out.csv", "summary.json", "captions.md"


def write_results(results: CaseResults, out: Path, command: str) -> list[Table]:
    """Write everything that is made of a case study's logs to ``out``; returns the tables for the screen.

    Results of an earlier case study are replaced; ``command``, what was typed, stands in summary and captions.

    ``summary.json`` comes last: where it is, everything else is.
    """
    discard_results(out)
    tables = [runs_table(results), detectors_table(results)]
    for table in tables:
        write_table(table, out)
    write_atomically(out / f"{SCORES}.csv", table_to_csv(scores_table(results)).encode())
    write_atomically(out / METRICS, to_csv(metrics_frame(results)))
    write_atomically(out / HELD_OUT, to_csv(held_out_frame(results)))
    write_figures(dashboard.draw(results), command, out)
    content = orjson.dumps(summary(results, command), option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY)
    write_atomically(out / SUMMARY, content + b"\n")
    return tables


def discard_results(out: Path) -> None:
    """Remove what :func:`write_results` made of an earlier case study; its logs are not touched."""
    names = (SUMMARY, METRICS, HELD_OUT, f"{SCORES}.csv", CAPTIONS, f"{RUNS}.*", f"{DETECTORS}.*", f"{dashboard.NAME}*")
    for pattern in names:
        for old in out.glob(pattern):
            old.unlink()
