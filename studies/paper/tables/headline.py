"""Headline: the paper's values, the R-Metric here, the best baseline and the calibrated R-Metric."""

from __future__ import annotations

from collections.abc import Mapping

from rmetric.evaluation.evaluator import CALIBRATED, REFERENCE, Evaluator
from rmetric.evaluation.protocols import PROTOCOLS
from rmetric.evaluation.studies import SIMULATED, backend_of
from rmetric.reporting.table import Cell, Column, Table, number
from studies import captions
from studies.robust.transfer import study_statistics

PAPER_F1, PAPER_LEAD = 0.973, 255
HELD_OUT = "Held out"


def short(studies: Mapping[str, Evaluator]) -> Table:
    """The result in one small table: the paper's row, then three of each study."""
    rows: list[dict[str, Cell]] = [{"study": "the paper", "what": "R-Metric", "f1_paper": PAPER_F1}]
    for name, ev in studies.items():
        rows += [{"study": name or backend_of(ev.study) or SIMULATED, **row} for row in _rows(ev)]
    columns = [
        Column("study", "Study"),
        Column("what", "Detector"),
        *(Column(f"f1_{p}", f"F1, {p}", 3, p) for p in PROTOCOLS),
        Column("false_alarms", "False alarms per 1,000 healthy steps", 3, "strict", interval=False),
    ]
    caption = (
        f"The paper's F1 beside this project's, at published thresholds. {HELD_OUT}: fitted to a false-alarm budget on "
        f"one half of the runs, scored on the other (Table 9). {captions.BOTH} "
    )
    texts = {study: captions.runs(ev) for study, ev in studies.items()}
    caption += " ".join(f"{study[:1].upper() + study[1:]}: {text}" if study else text for study, text in texts.items())
    caption += f" {captions.interval(next(iter(studies.values())))}"
    notes = dict.fromkeys(
        f"{study[:1].upper() + study[1:]}: {note}" if study else note
        for study, ev in studies.items()
        for note in _notes(ev)
    )
    return Table("headline", "Headline", caption, columns, rows, [*notes])


def tables(ev: Evaluator) -> list[Table]:
    """F1, precision, recall, false alarms and lead."""
    rows: list[dict[str, Cell]] = [{"what": "R-Metric, as published", "f1_paper": PAPER_F1, "lead_paper": PAPER_LEAD}]
    rows += _rows(ev)
    columns = [Column("what", "Detector")]
    for key, title, digits in (("f1", "F1", 3), ("precision", "Precision", 3), ("recall", "Recall", 3)):
        columns += [Column(f"{key}_{p}", f"{title}, {p}", digits, p, interval=key == "f1") for p in PROTOCOLS]
    columns += [Column(f"lead_{p}", f"Mean lead (steps), {p}", 0, p, interval=False) for p in PROTOCOLS]
    columns.append(Column("false_alarms", "False alarms per 1,000 healthy steps", 3, "strict", interval=False))
    caption = (
        "The published values beside those of this project's runs under both protocols, at published thresholds. Best "
        "baseline: the causal detector other than the R-Metric with the highest F1 on these very runs, which flatters "
        f"it a little. {captions.BOTH} {captions.runs(ev)} {captions.interval(ev)}"
    )
    return [Table("headline_full", "Headline, all columns", caption, columns, rows, _notes(ev))]


def _rows(ev: Evaluator) -> list[dict[str, Cell]]:
    """The R-Metric, the best baseline of each protocol, the calibrated R-Metric."""
    names = [REFERENCE] if REFERENCE in ev.detectors else []
    names += [name for name in dict.fromkeys(ev.best_baseline(protocol) for protocol in PROTOCOLS) if name is not None]
    rows: list[dict[str, Cell]] = []
    for name in names:
        best = [protocol for protocol in PROTOCOLS if ev.best_baseline(protocol) == name]
        remark = "" if name == REFERENCE else ", best baseline"
        if 0 < len(best) < len(PROTOCOLS):
            remark += f" ({best[0]})"
        row: dict[str, Cell] = {"what": f"{ev.detectors[name].title}{remark}"}
        for protocol in PROTOCOLS:
            summary = ev.summary(name, protocol)
            row[f"f1_{protocol}"], row[f"lead_{protocol}"] = summary["f1"], summary["mean_lead"]
            row[f"precision_{protocol}"], row[f"recall_{protocol}"] = summary["precision"], summary["recall"]
        row["false_alarms"] = ev.summary(name, "strict")["false_alarms_per_1000"]
        rows.append(row)
    return rows + _held_out(ev)


def _held_out(ev: Evaluator) -> list[dict[str, Cell]]:
    """The calibrated R-Metric, strict, on the runs that nothing was fitted to; nothing without it."""
    counts = study_statistics(ev).home_counts if CALIBRATED in ev.detectors else None
    if counts is None:
        return []
    summary = ev.summary_of(counts, ev.halves.score)
    what = f"{ev.detectors[CALIBRATED].title}, {HELD_OUT.lower()}"
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
    return [f"An alarm that never stops has F1 {trivial} under the paper protocol and 0 under the strict one."]
