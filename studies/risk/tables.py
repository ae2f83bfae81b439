"""Tables 12 to 14: how far risk, healing and diagnosis can be believed, on runs that the model was not fitted to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import pandas as pd

from rmetric.evaluation.evaluator import Evaluator
from rmetric.reporting.table import Cell, Column, Table
from rmetric.risk.model import FAMILIES, RiskModel, steps_a_record
from studies.catalogue import Inputs, Part, real_studies, table
from studies.risk.quality import Judged, brier_frame, confusion_frame, diagnosis_frame, healing_frame
from studies.risk.records import AFTER, begins_of, default_detector

SKILL = "Brier skill: 1 − Brier score / Brier score of the fit half's base rate; 1 is perfect, 0 is that base rate."
ASKED = (
    "A family is named from probability {bar} on, a bar chosen on the fit half. Asked at the first alert of a faulty "
    "run from its onset on and at every alert in a control run, and some steps later if the run has not failed or "
    "ended by then."
)


@lru_cache(maxsize=2)
def judge(ev: Evaluator) -> Judged:
    """The shipped model on the score half of an evaluated study."""
    detector = default_detector()
    alerts = None
    if detector.name in ev.detectors:
        alerts = begins_of(ev.study, ev.scores[detector.name], detector.threshold)
    return Judged.of(ev.study, RiskModel.shipped(), detector, alerts=alerts, draws=ev.draws, seed=ev.seed)


def _judged(inputs: Inputs) -> Mapping[str, Judged]:
    """Real studies, judged by the shipped model, which is fitted to their kind of runs."""
    return {study: judge(ev) for study, ev in real_studies(inputs).items()}


def tables_of(judged: Judged) -> list[Table]:
    """Tables 12 to 14b, by any model."""
    found = (description.table({"": judged}) for description in (risk, healing, diagnosis, confusion))
    return [each for each in found if each is not None]


def _facts(judged: Judged) -> dict[str, str]:
    return {
        "bar": f"{judged.model.parameters.families.bar:g}",
        "described": described(judged),
        "interval": f"In brackets: {intervals(judged)}",
    }


@table(
    "table_12_risk",
    "Risk, P(failure within k steps)",
    "P(failure within k steps), judged at the records of the score half: healthy ones once, of faulty runs those from "
    f"the onset to the last before the failure. {SKILL} Records too near the end of their run to know are left out. "
    "{described} {interval}",
    [
        Column("subset", "Records"),
        Column("horizon", "Within (steps)", leading=True),
        Column("runs", "Runs"),
        Column("records", "Records counted"),
        Column("base_rate", "Fail"),
        Column("brier", "Brier score", 4),
        Column("skill", "Brier skill"),
        Column("auc", "ROC area"),
    ],
    needs=_judged,
)
def risk(judged: Judged) -> Part:
    """One row a horizon and subset of the records."""
    return Part(_records(brier_frame(judged)), _facts(judged))


@table(
    "table_13_healing",
    "Recoverable or fatal, P(heals by itself) after an alert",
    "P(the run heals by itself), asked at an alert and some steps later, as long as the run has not failed: the first "
    "alert of a faulty run from its onset on (failed against recovered), and in all runs also every alert in a control "
    f"run, where nothing fails. {SKILL} The base rate is that of the same runs at the same time. {{described}} "
    "{interval}",
    [
        Column("runs_asked", "Alerts in"),
        Column("after", "Asked after (steps)", leading=True),
        Column("runs", "Runs"),
        Column("records", "Alerts"),
        Column("base_rate", "Heal"),
        Column("brier", "Brier score"),
        Column("skill", "Brier skill"),
        Column("auc", "ROC area"),
    ],
    needs=_judged,
)
def healing(judged: Judged) -> Part:
    """One row a time after the alert and kind of runs."""
    return Part(_records(healing_frame(judged)), _facts(judged))


@table(
    "table_14_diagnosis",
    "Diagnosis, fault family at an alert",
    "Diagnosis in short: shares of the alerts for which a fault family is named (the others are answered with "
    f"“unknown”), and for which the right one is. {ASKED} {{described}} {{interval}}",
    [
        Column("after", "Asked after (steps)"),
        Column("alerts", "Alerts"),
        Column("named", "Named"),
        Column("right_of_named", "Right of those named"),
        Column("right", "Right of all"),
        Column("likeliest_right", "Right if always named"),
    ],
    needs=_judged,
)
def diagnosis(judged: Judged) -> Part:
    """One row a time after the alert."""
    return Part(_records(diagnosis_frame(judged)), _facts(judged))


@table(
    "table_14b_confusion",
    "Diagnosis, confusion matrix",
    "Confusion matrix of the diagnosis, alerts by true family (rows) and answer (columns). Families: {families}; "
    f"benign: disturbances that harm nothing, and false alarms. {ASKED} {{described}}",
    [Column("after", "Steps after"), Column("true", "True family"), Column("alerts", "Alerts")],
    needs=_judged,
    about=("after", "true"),
)
def confusion(judged: Judged) -> Part:
    """One row a time after the alert and true family, one column an answer."""
    frame = confusion_frame(judged)
    answers = list(dict.fromkeys(frame["predicted"].tolist()))
    rows = [row for after in AFTER for row in _matrix(frame[frame["after"] == after], after)]
    families = "; ".join(f"{name}: {', '.join(faults)}" for name, faults in FAMILIES.items() if faults)
    columns = [Column(answer, f"→ {answer}") for answer in answers]
    return Part(rows, {"families": families, **_facts(judged)}, columns=columns)


def _records(frame: pd.DataFrame) -> list[dict[str, Cell]]:
    return frame.to_dict("records")  # type: ignore[return-value]


def _matrix(frame: pd.DataFrame, after: int) -> list[dict[str, Cell]]:
    rows: list[dict[str, Cell]] = []
    for family, group in frame.groupby("true", sort=False):
        counts = dict(zip(group["predicted"], group["alerts"].tolist(), strict=True))
        rows.append({"after": after, "true": str(family), "alerts": sum(counts.values()), **counts})
    return rows


def described(judged: Judged) -> str:
    """Model, alerts and runs, in words."""
    made = judged.model.parameters.provenance
    mine = {steps_a_record(run.observations.step) for run in judged.study.runs if len(run.observations) > 1}
    theirs = judged.model.steps_a_record
    text = (
        f"Model: fitted to the {made['runs']} runs of the fit half of a study ({', '.join(made['backends'])}: "
        f"{', '.join(made['models'])}). Alerts: {judged.detector.title} above {judged.detector.threshold:g}. "
        f"{int(judged.runs.sum())} runs in the score half (even repetition or seed)."
    )
    if mine - theirs:
        said, known = ("/".join(map(str, sorted(steps))) for steps in (mine, theirs))
        text += f" These logs have a record every {said} steps, those it was fitted to every {known}: out of its range."
    return text


def intervals(judged: Judged) -> str:
    """Which intervals a table has in brackets, or a figure as lines."""
    return (
        f"95 % bootstrap interval over runs ({judged.draws:,} resamples); of a share of 0 or 1, the exact one of the "
        "number of runs."
    )
