"""Table 9: all causal detectors at one false-alarm budget, on runs that nothing was fitted to."""

from __future__ import annotations

from collections.abc import Sequence

from rmetric.evaluation.evaluator import CALIBRATED, Evaluator
from rmetric.evaluation.held_out import VISIBILITY_BOUND, HeldOut, held_out, oracle, reference_of, scored
from rmetric.evaluation.scores import Score
from rmetric.reporting.table import Cell, Column, Table, number
from studies import captions
from studies.robust.transfer import study_statistics

FITTED_HERE = f"{CALIBRATED}, fitted here"
COLUMNS = (
    Column("detector", "Detector"),
    Column("threshold", "Threshold", 3, "strict"),
    Column("f1", "F1", 3, "strict"),
    Column("recall", "Recall", 3, "strict"),
    Column("false_alarms", "FP (episodes)", protocol="strict"),
    Column("false_alarms_per_1000", "FP per 1,000 healthy steps", 3, "strict", interval=False),
    Column("upper_bound", "Upper bound", 3, "strict"),
    Column("mean_share", "Share of warning time, missed: 0", 3, "strict"),
    Column("mean_share_warned", "Share, warned runs", 3, "strict"),
    Column("mean_lead", "Mean lead (steps)", 0, "strict", interval=False),
    Column("less_reference", "F1 less reference's", 3, "strict"),
)
SHARE = (
    "Share of warning time: mean over the failed runs of (failure − warning) / (failure − onset), a missed run having "
    "0; "
    "beside it over the warned runs alone."
)
VISIBILITY_CAPTION = (
    " visibility_bound knows the fault-free twin of every failed run and alarms in the first record that differs from "
    "the twin's by more than one scale of the noise, in a hardware event or in a slow step: where the fault begins to "
    "show. Healthy machines have such events and slow steps as well, and more of them than the budget allows false "
    "alarms; visibility_bound, second incident, waits for the second one, unless a step takes 4.5 times as long as "
    "usual."
)


def tables(ev: Evaluator) -> list[Table]:
    """One row a detector, and one for an oracle."""
    reference, found = reference_of(ev), held_out(ev)
    visible = VISIBILITY_CAPTION if any(item.name == VISIBILITY_BOUND for item in found) else ""
    caption = (
        "Strict protocol at a budget of at most one false alarm per 10,000 healthy steps, causal detectors alone. The "
        "threshold with the highest F1 within the budget is fitted on the half of the runs with odd repetition (or "
        "seed) and "
        f"scored on the other half, where the budget may be missed. {FITTED_HERE}: its tails and weights are fitted on "
        f"that half as well; those that are shipped are fitted to the real study. {SHARE} Upper bound: exact one-sided "
        f"95 % Poisson bound. {compared_with(ev, reference)} {bound(ev)}{visible} "
        f"Score half: {captions.runs(ev, ev.halves.score)} {captions.interval(ev)}"
    )
    title = "Table 9: Held-out comparison at the budget"
    return [Table("table_9_held_out", title, caption, COLUMNS, rows_of([*found[:1], *_fitted_here(ev), *found[1:]]))]


def _fitted_here(ev: Evaluator) -> list[HeldOut]:
    """The robust R-Metric with tails, weights and threshold of this study's own fit half."""
    own = study_statistics(ev) if CALIBRATED in ev.detectors else None
    if own is None or own.home is None or own.home_counts is None:
        return []
    shipped = ev.within_budget(CALIBRATED).counts
    return [scored(ev, FITTED_HERE, Score(own.home.threshold), own.home_counts, shipped, ev.halves.score)]


def rows_of(found: Sequence[HeldOut]) -> list[dict[str, Cell]]:
    """Cells of :data:`COLUMNS`."""
    return [
        {
            "detector": item.name,
            "threshold": item.threshold,
            **item.scores,
            "false_alarms": item.false_alarms,
            "less_reference": item.less_reference,
        }
        for item in found
    ]


def compared_with(ev: Evaluator, reference: str | None) -> str:
    """Whose F1 the others' are compared with."""
    if reference is None:
        return "No detector to compare with was asked for."
    return f"Last column: difference of F1 to that of {ev.detectors[reference].title}, paired bootstrap."


def bound(ev: Evaluator) -> str:
    """How many of the failed runs of the score half anybody could have warned."""
    counts = oracle(ev)
    chosen = counts.counted & ev.halves.score
    failed, warnable = int((counts.tp + counts.fn)[chosen].sum()), int(counts.tp[chosen].sum())
    if not failed:
        return "No run of the score half failed."
    return (
        f"{warnable} of the {failed} failed runs of the score half have a record between onset and failure: nobody "
        f"could "
        f"warn the others, so that no recall is above {number(warnable / failed, 3)}; the oracle alarms in the first "
        f"of "
        "these records and never else."
    )
