"""How far the risk can be believed: P(failure within k steps), P(heals by itself), on runs not fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from rmetric.episodes import episodes
from rmetric.evaluation.evaluator import Evaluator
from rmetric.reporting.table import Cell, Column, Table
from rmetric.risk.model import RiskModel
from studies.risk.quality import Judged, brier_frame, healing_frame
from studies.risk.records import default_detector

SKILL = "Brier skill: 1 − Brier score / Brier score of the fit half's base rate; 1 is perfect, 0 is that base rate."


def tables(ev: Evaluator) -> list[Table]:
    """Risk and healing, by the shipped model."""
    return tables_of(judge(ev))


@lru_cache(maxsize=2)
def judge(ev: Evaluator) -> Judged:
    """The shipped model on the score half of an evaluated study."""
    detector = default_detector()
    alerts = None
    if detector.name in ev.detectors:
        bounds, step = ev.timeline.bounds.tolist(), ev.timeline.step
        above = ev.scores[detector.name] > detector.threshold
        spans = [slice(*pair) for pair in pairwise(bounds)]
        alerts = {index: step[span][episodes(step[span], above[span])].tolist() for index, span in enumerate(spans)}
    return Judged.of(ev.study, RiskModel.shipped(), detector, alerts=alerts, draws=ev.draws, seed=ev.seed)


def tables_of(judged: Judged) -> list[Table]:
    """Risk and healing, by any model."""
    return [_risk(judged), _healing(judged)]


def _risk(judged: Judged) -> Table:
    rows: list[dict[str, Cell]] = brier_frame(judged).to_dict("records")  # type: ignore[assignment]
    columns = [
        Column("subset", "Records"),
        Column("horizon", "Within (steps)"),
        Column("runs", "Runs"),
        Column("records", "Records counted"),
        Column("base_rate", "Fail"),
        Column("brier", "Brier score", 4),
        Column("skill", "Brier skill"),
        Column("auc", "ROC area"),
    ]
    caption = (
        "P(failure within k steps), judged at the records of the score half: healthy ones once, of faulty runs those "
        f"from the onset to the last before the failure. {SKILL} Records too near the end of their run to know are "
        f"left out. {described(judged)}"
    )
    return Table("table_12_risk", "Table 12: Risk, P(failure within k steps)", caption, columns, rows)


def _healing(judged: Judged) -> Table:
    rows: list[dict[str, Cell]] = healing_frame(judged).to_dict("records")  # type: ignore[assignment]
    columns = [
        Column("runs_asked", "Alerts in"),
        Column("after", "Asked after (steps)"),
        Column("runs", "Runs"),
        Column("records", "Alerts"),
        Column("base_rate", "Heal"),
        Column("brier", "Brier score"),
        Column("skill", "Brier skill"),
        Column("auc", "ROC area"),
    ]
    caption = (
        "P(the run heals by itself), asked at an alert and some steps later, as long as the run has not failed: the "
        "first alert of a faulty run from its onset on (failed against recovered), and in all runs also every alert in "
        f"a control run, where nothing fails. {SKILL} {described(judged)}"
    )
    title = "Table 13: Recoverable or fatal, P(heals by itself) after an alert"
    return Table("table_13_healing", title, caption, columns, rows)


def described(judged: Judged) -> str:
    """Model, alerts, runs and intervals, in words."""
    made = judged.model.parameters.provenance
    mine = {_cadence(run.observations.step.tolist()) for run in judged.study.runs if len(run.observations) > 1}
    theirs = {*made["steps_a_record"]}
    text = (
        f"Model: fitted to the {made['runs']} runs of the fit half of a study ({', '.join(made['backends'])}: "
        f"{', '.join(made['models'])}). Alerts: {judged.detector.title} above {judged.detector.threshold:g}. "
        f"{int(judged.runs.sum())} runs in the score half (even repetition or seed). In brackets: 95 % bootstrap "
        f"interval over runs ({judged.draws:,} resamples)."
    )
    if mine - theirs:
        said, known = ("/".join(map(str, sorted(steps))) for steps in (mine, theirs))
        text += f" These logs have a record every {said} steps, those it was fitted to every {known}: out of its range."
    return text


def _cadence(steps: Sequence[int]) -> int:
    return int(np.median(np.diff(steps)))
