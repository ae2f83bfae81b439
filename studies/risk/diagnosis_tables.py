"""Which family of faults an alert is put down to, against the one that it was."""

from __future__ import annotations

import pandas as pd

from rmetric.evaluation.evaluator import Evaluator
from rmetric.reporting.table import Cell, Column, Table
from rmetric.risk.model import FAMILIES
from studies.risk.quality import AFTER, Judged, confusion_frame, diagnosis_frame
from studies.risk.risk_tables import described, judge


def tables(ev: Evaluator) -> list[Table]:
    """Shares of right answers, then the confusion matrices, by the shipped model."""
    return tables_of(judge(ev))


def tables_of(judged: Judged) -> list[Table]:
    """The same by any model."""
    return [_summary(judged), _confusion(judged)]


def _summary(judged: Judged) -> Table:
    rows: list[dict[str, Cell]] = diagnosis_frame(judged).to_dict("records")  # type: ignore[assignment]
    columns = [
        Column("after", "Asked after (steps)"),
        Column("alerts", "Alerts"),
        Column("named", "Named"),
        Column("right_of_named", "Right of those named"),
        Column("right", "Right of all"),
        Column("likeliest_right", "Right if always named"),
    ]
    caption = (
        "Diagnosis in short: shares of the alerts for which a fault family is named (the others are answered with "
        f"“unknown”), and for which the right one is. {_asked(judged)} {described(judged)}"
    )
    return Table("table_14_diagnosis", "Table 14: Diagnosis, fault family at an alert", caption, columns, rows)


def _confusion(judged: Judged) -> Table:
    frame = confusion_frame(judged)
    answers = list(dict.fromkeys(frame["predicted"].tolist()))
    rows = [row for after in AFTER for row in _matrix(frame[frame["after"] == after], after)]
    columns = [Column("after", "Steps after"), Column("true", "True family"), Column("alerts", "Alerts")]
    columns += [Column(answer, f"→ {answer}") for answer in answers]
    families = "; ".join(f"{name}: {', '.join(faults)}" for name, faults in FAMILIES.items() if faults)
    caption = (
        f"Confusion matrix of the diagnosis, alerts by true family (rows) and answer (columns). Families: {families}; "
        f"benign: disturbances that harm nothing, and false alarms. {_asked(judged)} {described(judged)}"
    )
    return Table("table_14b_confusion", "Table 14b: Diagnosis, confusion matrix", caption, columns, rows)


def _matrix(frame: pd.DataFrame, after: int) -> list[dict[str, Cell]]:
    rows: list[dict[str, Cell]] = []
    for family, group in frame.groupby("true", sort=False):
        counts = dict(zip(group["predicted"], group["alerts"].tolist(), strict=True))
        rows.append({"after": after, "true": str(family), "alerts": sum(counts.values()), **counts})
    return rows


def _asked(judged: Judged) -> str:
    bar = judged.model.parameters.families.bar
    return (
        f"A family is named from probability {bar:g} on, a bar chosen on the fit half. Asked at the first alert of a "
        "faulty run from its onset on and at every alert in a control run, and some steps later if the run has not "
        "failed or ended by then."
    )
