"""Tables 9, 10 and 18: causal detectors at one false-alarm budget, on runs that nothing was fitted to."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmetric.dataset.layout import FRESH, FRESH_2, TRANSFER, TRANSFER_2, TRANSFER_3, TRANSFER_4, TRANSFER_5
from rmetric.evaluation.evaluator import ALL, REFERENCE, Evaluator
from rmetric.evaluation.held_out import (
    VISIBILITY_BOUND,
    HeldOut,
    at_thresholds,
    held_out,
    kinds_of,
    moved,
    oracle,
    reference_of,
    runs_with,
    unseen_faults,
)
from rmetric.evaluation.protocols import Counts
from rmetric.evaluation.scores import Score, false_alarm_bound
from rmetric.reporting.table import Cell, Column, number
from studies import captions
from studies.catalogue import CATALOGUE, Description, Inputs, Part, table
from studies.paper.tables.detectors import DETECTOR, UPPER_BOUND

FITTED_WEIGHTS = f"{REFERENCE}, fitted weights"
SHARE = (
    "Share of warning time: mean over the failed runs of (failure − warning) / (failure − onset), a missed run having 0"
)
VISIBILITY_CAPTION = (
    "visibility_bound knows the fault-free twin of every failed run and alarms in the first record that differs from "
    "the twin's by more than one scale of the noise, in a hardware event or in a slow step: where the fault begins to "
    "show. Healthy machines have such events and slow steps as well, and more of them than the budget allows false "
    "alarms; visibility_bound, second incident, waits for the second one, unless a step takes 4.5 times as long as "
    "usual."
)
THRESHOLD = Column("threshold", "Threshold", 3, "strict")
RECALL = Column("recall", "Recall", 3, "strict")
FALSE_ALARMS = Column("false_alarms_per_1000", "FP per 1,000 healthy steps", 3, "strict", interval=False)
SHARE_USED = Column("mean_share", "Share of warning time, missed: 0", 3, "strict")
LESS_REFERENCE = Column("less_reference", "F1 less reference's", 3, "strict")


@table(
    "table_9_held_out",
    "Held-out comparison at the budget",
    "Strict protocol at a budget of at most one false alarm per 10,000 healthy steps, causal detectors alone. The "
    "threshold with the highest F1 within the budget is fitted on the half of the runs with odd repetition (or seed) "
    "and scored on the other half, where the budget may be missed. The robust R-Metric is fitted to healthy records of "
    f"the real study's fit half and of strangers' runs, threshold included. {SHARE}; beside it over the warned runs "
    "alone. Upper bound: exact one-sided 95 % Poisson bound. {reference} {bound} {visibility_bound} {score_half} "
    "{interval}",
    [
        DETECTOR,
        THRESHOLD,
        Column("f1", "F1", 3, "strict"),
        RECALL,
        Column("false_alarms", "FP (episodes)", protocol="strict"),
        FALSE_ALARMS,
        UPPER_BOUND,
        SHARE_USED,
        Column("mean_share_warned", "Share, warned runs", 3, "strict"),
        Column("mean_lead", "Mean lead (steps)", 0, "strict", interval=False),
        LESS_REFERENCE,
    ],
)
def held_out_comparison(ev: Evaluator) -> Part:
    """One row a detector, and one for an oracle."""
    found = held_out(ev)
    facts = {
        "reference": _compared_with(ev),
        "bound": _bound(ev),
        "visibility_bound": VISIBILITY_CAPTION if any(item.name == VISIBILITY_BOUND for item in found) else "",
    }
    rows: list[dict[str, Cell]] = [
        {
            "detector": item.name,
            "threshold": item.threshold,
            **item.scores,
            "false_alarms": item.false_alarms,
            "less_reference": item.less_reference,
        }
        for item in found
    ]
    return Part(rows, {**facts, **captions.facts(ev)})


def _compared_with(ev: Evaluator) -> str:
    """The detector whose F1 the others' are compared with."""
    reference = reference_of(ev)
    if reference is None:
        return "No detector to compare with was asked for."
    return f"{LESS_REFERENCE.title}: difference of F1 to that of {ev.detectors[reference].title}, paired bootstrap."


def _bound(ev: Evaluator) -> str:
    """Say how many of the failed runs of the score half could have been warned."""
    counts = oracle(ev)
    chosen = counts.counted & ev.halves.score
    failed, warnable = int((counts.tp + counts.fn)[chosen].sum()), int(counts.tp[chosen].sum())
    if not failed:
        return "No run of the score half failed."
    lost = f"; no detector could warn the others, so that no recall is above {number(warnable / failed, 3)}"
    return (
        f"{warnable} of the {failed} failed runs of the score half have a record between onset and failure"
        f"{lost if warnable < failed else ''}; the oracle alarms in the first of these records and never else."
    )


# --- Tables 10 and 18: other runs, nothing refitted ------------------------------------------------------------------


class ExtraSet(NamedTuple):
    """The table of a set beside a study."""

    table: str
    title: str
    called: str
    runs: str


_OTHERS = "models, optimizers and faults that no run of the study has"
_AGAIN = "the study once more, with other seeds for weights, batches, onsets and faults"
_ANEW = "Transfer without refitting, other seeds"
SETS = {
    TRANSFER: ExtraSet("table_10_unseen", "Transfer without refitting", "transfer set", _OTHERS),
    TRANSFER_2: ExtraSet("table_10b_unseen_2", _ANEW, "second transfer set", _OTHERS),
    TRANSFER_3: ExtraSet("table_10c_unseen_3", _ANEW, "third transfer set", _OTHERS),
    TRANSFER_4: ExtraSet("table_10d_unseen_4", _ANEW, "fourth transfer set", _OTHERS),
    TRANSFER_5: ExtraSet("table_10e_unseen_5", _ANEW, "fifth transfer set", _OTHERS),
    FRESH: ExtraSet("table_18_fresh", "Fresh seeds without refitting", "fresh set", _AGAIN),
    FRESH_2: ExtraSet("table_18b_fresh_2", "Other fresh seeds without refitting", "second fresh set", _AGAIN),
}
Pair = tuple[Evaluator, Evaluator]
"""The study on whose fit half thresholds and weights are fitted, and the set, all of whose runs are scored."""


def _pairs(inputs: Inputs, extra_set: str) -> Mapping[str, Pair]:
    return {study: (inputs.studies[study], target) for study, target in inputs.sets.get(extra_set, {}).items()}


def _without_refitting(pair: Pair) -> Part:
    """One row a causal detector, one for fitted weights of the R-Metric, one for an oracle."""
    ev, target = pair
    kinds, unseen = kinds_of(target), unseen_faults(ev, target)
    parts = {_key(kind): ("f1", runs_R) for kind, runs_R in kinds.items()}
    parts["recall_unseen"] = ("recall", runs_with(target, unseen))
    rows = [_moved(ev, target, item, parts) for item in moved(ev, target)]
    rows[-1:-1] = _fitted_weights(ev, target, parts)
    columns = [Column(_key(kind), f"F1, {kind}", 3, "strict") for kind in kinds]
    columns += [Column("recall_unseen", "Recall, unseen faults", 3, "strict")] if unseen else []
    faults = f" Unseen faults: {', '.join(unseen)}." if unseen else ""
    facts = {**captions.facts(target), "reference": _compared_with(target) + faults, "traced": captions.traced(ev)}
    return Part(rows, facts, columns=columns)


def _key(kind: str) -> str:
    return "f1_" + re.sub(r"\W+", "_", kind)


Parts = Mapping[str, tuple[str, NDArray[np.bool_]]]
"""Column → the score, and the runs it is of."""


def _moved(ev: Evaluator, target: Evaluator, item: HeldOut, parts: Parts) -> dict[str, Cell]:
    row: dict[str, Cell] = {"detector": item.name, "threshold": item.threshold, "less_reference": item.less_reference}
    row |= {key: item.scores[key] for key in ("f1", "recall", "false_alarms_per_1000", "upper_bound", "mean_share")}
    if item.name in ev.detectors:
        row["f1_home"] = at_thresholds(ev, {item.name: item.threshold}, ev.halves.score)[0].scores["f1"]
    return row | _of_parts(target, item.counts, item.threshold.reason, parts)


def _of_parts(target: Evaluator, counts: Counts | None, reason: str, parts: Parts) -> dict[str, Cell]:
    if counts is None:
        return dict.fromkeys(parts, Score.undefined(reason))
    return {key: target.score_of(name, counts, runs_R) for key, (name, runs_R) in parts.items()}


def _fitted_weights(ev: Evaluator, target: Evaluator, parts: Parts) -> Sequence[dict[str, Cell]]:
    """The R-Metric with the weights and threshold of highest F1 on the study's fit half, if it can be fitted."""
    fitted = ev.fit(np.ones(len(ev.timeline), bool), "strict") if REFERENCE in ev.detectors else None
    if fitted is None:
        return []
    at_home = ev.counts_with(fitted.weights, fitted.threshold, "strict")
    counts = target.counts_with(fitted.weights, fitted.threshold, "strict")
    summary = target.summary_of(counts, ALL)
    row: dict[str, Cell] = {"detector": FITTED_WEIGHTS, "threshold": Score(fitted.threshold)}
    row |= {key: summary[key] for key in ("f1", "recall", "false_alarms_per_1000", "mean_share")}
    row["f1_home"] = ev.score_of("f1", at_home, ev.halves.score)
    row["upper_bound"] = false_alarm_bound(counts.of(counts.counted))
    return [row | _of_parts(target, counts, "", parts)]


def _described(extra_set: str, words: ExtraSet) -> Description[Pair]:
    pairs: Callable[[Inputs], Mapping[str, Pair]] = partial(_pairs, extra_set=extra_set)
    return Description(
        name=words.table,
        title=words.title,
        caption="Nothing is refitted; strict protocol. Thresholds are those of Table 9, fitted on the study's fit half "
        "at one false alarm per 10,000 healthy steps; weights (R-Metric) are those of highest F1 there. All runs of "
        f"the {words.called} are scored: {words.runs}. {SHARE}. {{reference}} {{traced}} {{runs}} {{interval}}",
        columns=[
            DETECTOR,
            THRESHOLD,
            Column("f1_home", "F1, score half of the study", 3, "strict"),
            Column("f1", f"F1, {words.called}", 3, "strict"),
            RECALL,
            FALSE_ALARMS,
            UPPER_BOUND,
            SHARE_USED,
            LESS_REFERENCE,
        ],
        part=_without_refitting,
        needs=pairs,
        extra_set=extra_set,
    )


for _name, _words in SETS.items():
    CATALOGUE.add(_described(_name, _words))
