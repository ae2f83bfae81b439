"""Tables 10 and 18: thresholds and weights of one study on runs that nothing was fitted to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmetric.dataset.layout import FRESH, FRESH_2, TRANSFER, TRANSFER_2, TRANSFER_3, TRANSFER_4, TRANSFER_5
from rmetric.evaluation.evaluator import ALL, Evaluator
from rmetric.evaluation.held_out import HeldOut, at_thresholds, kinds_of, moved, reference_of, runs_with, unseen_faults
from rmetric.evaluation.protocols import Counts
from rmetric.evaluation.scores import Score, false_alarm_bound
from rmetric.reporting.table import Cell, Column, Table
from studies import captions
from studies.paper.tables.held_out import SHARE, compared_with

FITTED_WEIGHTS = "r_metric, fitted weights"
PARTS = {"10": (TRANSFER, TRANSFER_2, TRANSFER_3, TRANSFER_4, TRANSFER_5), "18": (FRESH, FRESH_2)}
"""Number of a table → the sets that it is made for."""


class _Words(NamedTuple):
    """What the table of a set is called, and what it says of its runs."""

    name: str
    title: str
    called: str
    runs: str


_OTHERS = "models, optimizers and faults that no run of the study has"
_AGAIN = "the study once more, with other seeds for weights, batches, onsets and faults"
WORDS = {
    TRANSFER: _Words("table_10_unseen", "Table 10: Transfer without refitting", "transfer set", _OTHERS),
    TRANSFER_2: _Words(
        "table_10b_unseen_2", "Table 10b: Transfer without refitting, other seeds", "second transfer set", _OTHERS
    ),
    TRANSFER_3: _Words(
        "table_10c_unseen_3", "Table 10c: Transfer without refitting, other seeds", "third transfer set", _OTHERS
    ),
    TRANSFER_4: _Words(
        "table_10d_unseen_4", "Table 10d: Transfer without refitting, other seeds", "fourth transfer set", _OTHERS
    ),
    TRANSFER_5: _Words(
        "table_10e_unseen_5", "Table 10e: Transfer without refitting, other seeds", "fifth transfer set", _OTHERS
    ),
    FRESH: _Words("table_18_fresh", "Table 18: Fresh seeds without refitting", "fresh set", _AGAIN),
    FRESH_2: _Words("table_18b_fresh_2", "Table 18b: Other fresh seeds without refitting", "second fresh set", _AGAIN),
}


def tables(part: str, ev: Evaluator, target: Evaluator) -> list[Table]:
    """Tables 10 to 10e, 18 or 18b: a row a causal detector, one for fitted weights of the R-Metric, one for an oracle.

    Parameters
    ----------
    part
        One of :data:`WORDS`.
    ev
        The study on whose fit half thresholds and weights are fitted.
    target
        The set, all of whose runs are scored.
    """
    words, kinds, unseen = WORDS[part], kinds_of(target), unseen_faults(ev, target)
    rows = [_row(ev, target, item, kinds, unseen) for item in moved(ev, target)]
    weighted = _fitted_weights(ev, target, kinds, unseen)
    rows[-1:-1] = [weighted] if weighted else []
    columns = [
        Column("detector", "Detector"),
        Column("threshold", "Threshold", 3, "strict"),
        Column("f1_home", "F1, score half of the study", 3, "strict"),
        Column("f1", f"F1, {words.called}", 3, "strict"),
        Column("recall", "Recall", 3, "strict"),
        Column("false_alarms_per_1000", "FP per 1,000 healthy steps", 3, "strict", interval=False),
        Column("upper_bound", "Upper bound", 3, "strict"),
        Column("mean_share", "Share of warning time, missed: 0", 3, "strict"),
        *(Column(f"f1_kind_{place}", f"F1, {kind}", 3, "strict") for place, kind in enumerate(kinds)),
        *([Column("recall_unseen", f"Recall, {' and '.join(unseen)}", 3, "strict")] if unseen else []),
        Column("less_reference", "F1 less reference's", 3, "strict"),
    ]
    caption = (
        "Nothing is refitted; strict protocol. Thresholds are those of Table 9, fitted on the study's fit half "
        "at "
        "one false alarm per 10,000 healthy steps; weights (R-Metric) are those of highest F1 there. "
        f"All runs of the {words.called} are scored: {words.runs}"
        f"{' (faults: ' + ', '.join(unseen) + ')' if unseen else ''}. "
        f"{SHARE} "
        f"{compared_with(target, reference_of(target))} "
        f"{captions.runs(target)} {captions.interval(target)}"
    )
    return [Table(words.name, words.title, caption, columns, rows)]


def _row(
    ev: Evaluator, target: Evaluator, item: HeldOut, kinds: dict[str, NDArray[np.bool_]], unseen: list[str]
) -> dict[str, Cell]:
    row: dict[str, Cell] = {"detector": item.name, "threshold": item.threshold, "less_reference": item.less_reference}
    row |= {key: item.scores[key] for key in ("f1", "recall", "false_alarms_per_1000", "upper_bound", "mean_share")}
    if item.name in ev.detectors:
        row["f1_home"] = at_thresholds(ev, {item.name: item.threshold}, ev.halves.score)[0].scores["f1"]
    return row | _parts(target, item.counts, item.threshold.reason, kinds, unseen)


def _parts(
    target: Evaluator,
    counts: Counts | None,
    reason: str,
    kinds: dict[str, NDArray[np.bool_]],
    unseen: list[str],
) -> dict[str, Cell]:
    """F1 by model and optimizer, recall of the unseen faults."""
    parts = {f"f1_kind_{place}": ("f1", runs_R) for place, runs_R in enumerate(kinds.values())}
    parts["recall_unseen"] = ("recall", runs_with(target, unseen))
    if counts is None:
        return dict.fromkeys(parts, Score.undefined(reason))
    return {key: target.summary_of(counts, runs_R)[name] for key, (name, runs_R) in parts.items()}


def _fitted_weights(
    ev: Evaluator, target: Evaluator, kinds: dict[str, NDArray[np.bool_]], unseen: list[str]
) -> dict[str, Cell] | None:
    """The R-Metric with the weights and threshold of highest F1 on the study's fit half."""
    fitted = ev.fit(np.ones(len(ev.timeline), bool), "strict") if "r_metric" in ev.detectors else None
    if fitted is None:
        return None
    at_home = ev.counts_with(fitted.weights, fitted.threshold, "strict")
    counts = target.counts_with(fitted.weights, fitted.threshold, "strict")
    summary = target.summary_of(counts, ALL)
    row: dict[str, Cell] = {"detector": FITTED_WEIGHTS, "threshold": Score(fitted.threshold)}
    row |= {key: summary[key] for key in ("f1", "recall", "false_alarms_per_1000", "mean_share")}
    row["f1_home"] = ev.summary_of(at_home, ev.halves.score)["f1"]
    row["upper_bound"] = false_alarm_bound(counts.of(counts.counted))
    return row | _parts(target, counts, "", kinds, unseen)
