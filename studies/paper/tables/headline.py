"""The result in three rows: the paper's, ours, and the best baseline, under both protocols."""

from __future__ import annotations

from rmetric.evaluation.evaluator import CALIBRATED, REFERENCE, Evaluator
from rmetric.evaluation.protocols import PROTOCOLS
from rmetric.evaluation.studies import SIMULATED, world_of
from rmetric.reporting.table import Cell, Column, Table, number
from studies import captions
from studies.robust.transfer import measured

PAPER_F1, PAPER_LEAD = 0.973, 255


def tables(ev: Evaluator) -> list[Table]:
    """F1, false alarms and lead."""
    names = [REFERENCE] if REFERENCE in ev.detectors else []
    names += [name for name in dict.fromkeys(ev.best_baseline(protocol) for protocol in PROTOCOLS) if name is not None]
    rows: list[dict[str, Cell]] = [{"what": "R-Metric, as published", "f1_paper": PAPER_F1, "lead_paper": PAPER_LEAD}]
    for name in names:
        best = [protocol for protocol in PROTOCOLS if ev.best_baseline(protocol) == name]
        remark = "" if name == REFERENCE else f"; best baseline, {' and '.join(best)}"
        row: dict[str, Cell] = {"what": f"{ev.detectors[name].title}, here{remark}"}
        for protocol in PROTOCOLS:
            summary = ev.summary(name, protocol)
            row[f"f1_{protocol}"], row[f"lead_{protocol}"] = summary["f1"], summary["mean_lead"]
            row[f"precision_{protocol}"], row[f"recall_{protocol}"] = summary["precision"], summary["recall"]
        row["false_alarms"] = ev.summary(name, "strict")["false_alarms_per_1000"]
        rows.append(row)
    rows += _held_out(ev)
    columns = [Column("what", "Detector")]
    for key, title, digits in (("f1", "F1", 3), ("precision", "Precision", 3), ("recall", "Recall", 3)):
        columns += [Column(f"{key}_{p}", f"{title}, {p}", digits, p, interval=key == "f1") for p in PROTOCOLS]
    columns += [Column(f"lead_{p}", f"Mean lead (steps), {p}", 0, p, interval=False) for p in PROTOCOLS]
    columns.append(Column("false_alarms", "False alarms per 1,000 healthy steps", 3, "strict", interval=False))
    kind = world_of(ev.study) or SIMULATED
    caption = (
        f"Headline. The published values beside those of this project's {kind} runs under both protocols, at "
        "published thresholds; baseline: the causal detector other than the R-Metric with the highest F1 on these "
        f"very runs, which flatters it a little. {captions.BOTH} {captions.runs(ev)} {captions.interval(ev)}"
    )
    return [Table("headline", "Headline", caption, columns, rows, _notes(ev))]


def _held_out(ev: Evaluator) -> list[dict[str, Cell]]:
    """The calibrated R-Metric, strict, on the runs that nothing was fitted to; nothing without it."""
    counts = measured(ev).home_counts if CALIBRATED in ev.detectors else None
    if counts is None:
        return []
    summary = ev.summary_of(counts, ev.halves.score)
    what = f"{ev.detectors[CALIBRATED].title}, here; fitted on one half, scored on the other (Table 9)"
    row: dict[str, Cell] = {f"{key}_strict": summary[key] for key in ("f1", "precision", "recall")}
    return [
        {"what": what, **row, "lead_strict": summary["mean_lead"], "false_alarms": summary["false_alarms_per_1000"]}
    ]


def _notes(ev: Evaluator) -> list[str]:
    """What an alarm that never stops would score: the mark to beat under the paper protocol."""
    counted = ev.timeline.counted("paper")
    failed, runs = int((counted & ev.timeline.failed).sum()), int(counted.sum())
    if not failed:
        return []
    trivial = number(2 * failed / (failed + runs), 3)
    return [f"An alarm that always rings has F1 {trivial} under the paper protocol and 0 under the strict one."]
