"""The tables of a case study: its runs, its detectors, and every detector in every run."""

from __future__ import annotations

from typing import Any

from rmetric.evaluation.evaluator import REFERENCE
from rmetric.evaluation.protocols import PROTOCOLS, Protocol
from rmetric.evaluation.scores import Score, false_alarm_bound, summarise
from rmetric.reporting.case_study.findings import CaseResults, Finding
from rmetric.reporting.formats import Cell, Column, Table
from rmetric.reporting.tables import captions

RUNS, DETECTORS, SCORES = "runs", "detectors", "scores"
"""Names of the tables, and of their files."""
NO_INTERVALS = (
    "No intervals: the runs share their seed and everything before the onset, so they are cases and no sample."
)


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
                "warning_strict": _warning(strict),
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
    notes = [
        f"{ev.detectors[name].title} gave no score in these runs: too short for its warm-up, or a signal is missing."
        for name in results.silent
    ]
    return Table(DETECTORS, "Case study: detectors", caption, columns, rows, [*captions.unmeasured(ev), *notes])


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
    """What a detector did over all runs that are counted: ``warned, mean_lead, false_alarms, …``."""
    counts = results.evaluator.counts(name, protocol)
    counted = counts.of(counts.counted)
    summary = summarise(counted)
    failed = int((counted.tp + counted.fn).sum())
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


def _warning(finding: Finding) -> Score:
    """The step of a warning; that of an absorbed or false alarm is none."""
    return finding.step if finding.verdict == "warned" else finding.lead


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
    """How far the truth about these runs can be trusted."""
    agrees = results.study.twin_matches_control
    return [
        {
            True: "The control, which the monitor watched, and the twin, which it did not, agree to the last bit.",
            False: "The control and the twin differ: on this device equal runs are not equal to the last bit.",
            None: "There is no control among the runs (NONE): the healthy steps are those before the onset.",
        }[agrees]
    ]
