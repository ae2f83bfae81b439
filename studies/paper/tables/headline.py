"""Headline: the paper's values, the R-Metric here, the best baseline and the calibrated R-Metric."""

from __future__ import annotations

from rmetric.detectors import ROBUST
from rmetric.evaluation.evaluator import REFERENCE, Evaluator
from rmetric.evaluation.protocols import PROTOCOLS
from rmetric.reporting.table import Cell, Column, number
from studies import captions
from studies.catalogue import STUDY, Part, table

DETECTOR = Column("what", "Detector")
FALSE_ALARMS = Column("false_alarms", "False alarms per 1,000 healthy steps", 3, "strict", interval=False)
SCORES = (("f1", "F1", 3), ("precision", "Precision", 3), ("recall", "Recall", 3))
BASELINE = (
    "Best baseline: the causal detector other than the R-Metric with the highest F1 on these very runs, which flatters "
    "it a little. Held out: fitted to a false-alarm budget on one half of the runs, scored on the other (Table 9). The "
    "budget is of the strict protocol, so that there is no score under the paper's; Table 3 has one, of all runs, at "
    "the threshold of the detector's settings."
)


@table(
    "headline",
    "Headline",
    f"The paper's F1 beside this project's, at published thresholds. {BASELINE} {captions.BOTH} {{runs}} {{interval}}",
    [STUDY, DETECTOR, *(Column(f"f1_{p}", f"F1, {p}", 3, p) for p in PROTOCOLS), FALSE_ALARMS],
    shared=True,
)
def headline(ev: Evaluator) -> Part:
    """The paper's row, which stands once, and this study's."""
    return _below_the_paper(ev)


@table(
    "headline_full",
    "Headline, all columns",
    "The published values beside those of this project's runs under both protocols, at published thresholds. "
    f"{BASELINE} {captions.BOTH} {{runs}} {{interval}}",
    [
        STUDY,
        DETECTOR,
        *(
            Column(f"{key}_{p}", f"{title}, {p}", digits, p, interval=key == "f1")
            for key, title, digits in SCORES
            for p in PROTOCOLS
        ),
        *(Column(f"lead_{p}", f"Mean lead (steps), {p}", 0, p, interval=False) for p in PROTOCOLS),
        FALSE_ALARMS,
    ],
    shared=True,
)
def headline_full(ev: Evaluator) -> Part:
    """The same with precision, recall and lead."""
    return _below_the_paper(ev, lead_paper=captions.PAPER_LEAD)


def _below_the_paper(ev: Evaluator, **more: Cell) -> Part:
    paper: dict[str, Cell] = {"study": "the paper", "what": "R-Metric", "f1_paper": captions.PAPER_F1, **more}
    return Part([paper, *rows_of(ev)], captions.facts(ev), _trivial_score(ev))


def rows_of(ev: Evaluator) -> list[dict[str, Cell]]:
    """The R-Metric, the best baseline of each protocol, the calibrated R-Metric."""
    best = {protocol: ev.best_baseline(protocol) for protocol in PROTOCOLS}
    rows = [_row(ev, REFERENCE, "")] if REFERENCE in ev.detectors else []
    for name in dict.fromkeys(best.values()):
        if name is not None:
            under = [protocol for protocol in PROTOCOLS if best[protocol] == name]
            rows.append(_row(ev, name, ", best baseline" + (f" ({under[0]})" if len(under) == 1 else "")))
    return rows + _held_out(ev)


def _row(ev: Evaluator, name: str, remark: str) -> dict[str, Cell]:
    row: dict[str, Cell] = {"what": f"{ev.detectors[name].title}{remark}"}
    for protocol in PROTOCOLS:
        summary = ev.summary(name, protocol)
        row |= {f"{key}_{protocol}": summary[key] for key, _, _ in SCORES}
        row[f"lead_{protocol}"] = summary["mean_lead"]
    return row | {"false_alarms": ev.summary(name, "strict")["false_alarms_per_1000"]}


def _held_out(ev: Evaluator) -> list[dict[str, Cell]]:
    """The calibrated R-Metric, strict, on the runs that nothing was fitted to; nothing without it."""
    counts = ev.within_budget(ROBUST).counts if ROBUST in ev.detectors else None
    if counts is None:
        return []
    summary = ev.summary_of(counts, ev.halves.score)
    row: dict[str, Cell] = {"what": f"{ev.detectors[ROBUST].title}, held out"}
    row |= {f"{key}_strict": summary[key] for key, _, _ in SCORES}
    return [row | {"lead_strict": summary["mean_lead"], "false_alarms": summary["false_alarms_per_1000"]}]


def _trivial_score(ev: Evaluator) -> list[str]:
    """The F1 of an alarm that never stops: the mark to beat under the paper protocol."""
    counted = ev.timeline.counted("paper")
    failed, runs = int((counted & ev.timeline.failed).sum()), int(counted.sum())
    if not failed:
        return []
    trivial = number(2 * failed / (failed + runs), 3)
    return [f"An alarm that never stops has F1 {trivial} under the paper protocol and 0 under the strict one."]
