"""Tables 5, 7 and 11: the R-Metric's threshold and weights: how much they matter, transfer, fitted anew."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rmetric.evaluation.ablation import ablation, transfers
from rmetric.evaluation.evaluator import PAPER_THRESHOLDS, REFERENCE, Evaluator
from rmetric.evaluation.protocols import PROTOCOLS
from rmetric.evaluation.scores import Score, percentile_interval
from rmetric.evaluation.weights import bootstrap_weights
from rmetric.metric import RMetric
from rmetric.reporting.table import Cell, Column
from rmetric.signals import Weights
from studies import captions
from studies.catalogue import Part, table

SIGNS = ("λ", "σ²", "ΔL")
THRESHOLDS = tuple(sorted({0.40, 0.45, 0.50, 0.70, 0.75, 0.80, *PAPER_THRESHOLDS}))
PUBLISHED = RMetric.paper().threshold
SCORES = (("precision", "Precision", 3), ("recall", "Recall", 3), ("f1", "F1", 3), ("mean_lead", "Mean lead", 0))
TRANSFER = (
    ("transferred", "F1, source's weights", 3),
    ("native", "F1, target's own", 3),
    ("paper", "F1, paper's", 3),
    ("loss_pct", "Loss by transfer (%)", 1),
    ("against_paper_pct", "Gain over paper's (%)", 1),
)
MOST_DRAWS = 500
"""Each resample is a whole fit; more of them change no digit that is shown."""
POOLED = "all"


@table(
    "table_5_threshold",
    "Threshold",
    "R-Metric at other thresholds; 0.55, 0.56, 0.57, 0.60 and 0.65 occur in the author's files and their history. All "
    f"runs; lead in steps. {captions.BOTH} {{runs}} {{interval}}",
    [
        Column("threshold", "Threshold", 2),
        *(
            Column(f"{key}_{protocol}", f"{title}, {protocol}", digits, protocol, interval=key == "f1")
            for protocol in PROTOCOLS
            for key, title, digits in SCORES
        ),
        Column("false_alarms_strict", "False alarms per 1,000 healthy steps", 3, "strict", interval=False),
    ],
    about=("threshold",),
)
def thresholds(ev: Evaluator) -> Part | None:
    """One row a threshold; none without the R-Metric."""
    if REFERENCE not in ev.detectors:
        return None
    rows: list[dict[str, Cell]] = []
    for threshold in THRESHOLDS:
        found = {protocol: ev.summary(REFERENCE, protocol, threshold) for protocol in PROTOCOLS}
        scores = {f"{key}_{protocol}": found[protocol][key] for protocol in PROTOCOLS for key, _, _ in SCORES}
        false_alarms = found["strict"]["false_alarms_per_1000"]
        rows.append({"threshold": threshold, **scores, "false_alarms_strict": false_alarms})
    return Part(rows, captions.facts(ev))


@table(
    "table_5b_ablation",
    "Ablation",
    "R-Metric without each of its signals; the other weights are scaled so that they sum to 1.25. F1 at "
    f"{PUBLISHED}: all runs. Fitted threshold: highest F1 on the fit half (odd repetition or seed), scored on the "
    f"other half; fitted weights: highest F1 on the fit half among all steps of 1/20. {captions.BOTH} {{all}} "
    "{traced} {score_half} {interval}",
    [
        Column("variant", "Variant"),
        *(
            column
            for protocol in PROTOCOLS
            for column in (
                Column(f"weights_{protocol}", f"λ / σ² / ΔL, {protocol}", protocol=protocol),
                Column(f"published_{protocol}", f"F1 at {PUBLISHED}, {protocol}", 3, protocol),
                Column(f"threshold_{protocol}", f"Fitted threshold, {protocol}", 3, protocol),
                Column(f"refitted_{protocol}", f"F1 at it, held out, {protocol}", 3, protocol),
            )
        ),
    ],
    about=("variant",),
)
def without_signals(ev: Evaluator) -> Part:
    """One row a variant of the weights."""
    rows: dict[str, dict[str, Cell]] = {}
    for item in ablation(ev):
        protocol = item.protocol
        rows.setdefault(item.name, {"variant": item.name}).update(
            {
                f"weights_{protocol}": _listed(item.weights),
                f"published_{protocol}": item.published,
                f"threshold_{protocol}": _threshold(item.threshold, "no run of the fit half failed"),
                f"refitted_{protocol}": item.refitted,
            }
        )
    return Part([*rows.values()], {"all": f"All: {captions.runs(ev)}", **captions.facts(ev)})


def _listed(weights: Weights) -> str:
    return " / ".join(f"{weight:.2f}" for weight in weights)


def _threshold(value: float, reason: str) -> Score:
    return Score.undefined(reason) if math.isnan(value) else Score(value)


@table(
    "table_7_transfer",
    "Transfer across architectures",
    "Transfer of the weights. Weights (steps of 1/20 of their sum 1.25) and threshold of highest F1 under the protocol "
    "in question are fitted on one architecture's fit half (odd repetition or seed) and scored on another one's score "
    "half, beside the weights fitted at home and the paper's (threshold 0.57). Loss by transfer: relative to the "
    "weights fitted at home; negative if the transferred ones do better; fits are taken as given, the intervals are of "
    f"the score half alone. {captions.BOTH} {{traced}} {{score_half}} {{interval}}",
    [
        Column("source", "Fitted on"),
        Column("target", "Scored on"),
        *(
            column
            for protocol in PROTOCOLS
            for column in (
                Column(f"weights_{protocol}", f"λ / σ² / ΔL, {protocol}", protocol=protocol),
                Column(f"threshold_{protocol}", f"Threshold, {protocol}", 3, protocol),
                *(
                    Column(f"{key}_{protocol}", f"{title}, {protocol}", digits, protocol)
                    for key, title, digits in TRANSFER
                ),
            )
        ),
    ],
)
def across_architectures(ev: Evaluator) -> Part:
    """One row a pair of architectures; the diagonal shows what fitting gains at home."""
    rows: dict[tuple[str, str], dict[str, Cell]] = {}
    for item in transfers(ev):
        pair, protocol, fitted = (item.source, item.target), item.protocol, item.fitted
        rows.setdefault(pair, {"source": item.source, "target": item.target}).update(
            {
                f"weights_{protocol}": _listed(fitted.weights) if fitted is not None else item.transferred,
                f"threshold_{protocol}": Score(fitted.threshold) if fitted is not None else item.transferred,
                **{f"{key}_{protocol}": getattr(item, key) for key, _, _ in TRANSFER},
            }
        )
    return Part([*rows.values()], captions.facts(ev))


@table(
    "table_11_weights",
    "Weights derived anew",
    f"Weights of λ, σ² and ΔL (steps of 1/20 of their sum {sum(Weights()):g}) and threshold of highest F1 under the "
    "strict protocol on the fit half (odd repetition or seed), scored on the other half. In brackets behind a weight: "
    "95 % of the weights of highest F1 in {draws} bootstrap resamples of the runs fitted to; the F1 on the fit half is "
    "optimistic. A wide interval says that F1 hardly depends on that weight. {traced} {score_half} {interval}",
    [
        Column("fitted_on", "Fitted on"),
        *(Column(f"weight_{place}", f"Weight of {sign}", 2, "strict") for place, sign in enumerate(SIGNS)),
        Column("threshold", "Threshold", 3, "strict"),
        Column("fit_f1", "F1, fit half", 3, "strict"),
        Column("held_out_own", "F1, its own score half", 3, "strict"),
        Column("held_out_all", "F1, whole score half", 3, "strict"),
    ],
)
def weights(ev: Evaluator) -> Part:
    """One row an architecture, one for all, and one with the paper's."""
    architectures = sorted({run.model_type for run in ev.study.runs})
    groups = {name: ev.runs_where(model_type=name) for name in architectures} if len(architectures) > 1 else {}
    groups[POOLED] = np.ones(len(ev.timeline), bool)
    paper = RMetric.paper()
    published: dict[str, Cell] = {
        "fitted_on": "the paper's",
        **{f"weight_{place}": Score(weight) for place, weight in enumerate(paper.weights)},
        "threshold": Score(paper.threshold),
        "held_out_all": ev.score_of("f1", ev.counts_with(paper.weights, paper.threshold, "strict"), ev.halves.score),
    }
    rows = [_fitted(ev, name, runs_R) for name, runs_R in groups.items()]
    return Part([*rows, published], {"draws": f"{_draws(ev):,}", **captions.facts(ev)})


def _draws(ev: Evaluator) -> int:
    return min(ev.draws, MOST_DRAWS)


def _fitted(ev: Evaluator, name: str, runs_R: NDArray[np.bool_]) -> dict[str, Cell]:
    fitted = ev.fit(runs_R, "strict")
    if fitted is None:
        nothing = Score.undefined("no run of the fit half failed")
        keys = [*(f"weight_{place}" for place in range(3)), "threshold", "fit_f1", "held_out_own", "held_out_all"]
        return {"fitted_on": name, **dict.fromkeys(keys, nothing)}
    part, signals_3N = ev.traces(runs_R & ev.halves.fit)
    drawn_BR = ev.weights(runs_R & ev.halves.fit & ev.traced)[: _draws(ev)]
    drawn_B3 = bootstrap_weights(part, signals_3N, drawn_BR, jobs=ev.jobs)
    counts = ev.counts_with(fitted.weights, fitted.threshold, "strict")
    row: dict[str, Cell] = {"fitted_on": name, "threshold": Score(fitted.threshold), "fit_f1": Score(fitted.f1)}
    for place, (weight, drawn_B) in enumerate(zip(fitted.weights, drawn_B3.T, strict=True)):
        row[f"weight_{place}"] = Score(weight, *percentile_interval(drawn_B))
    row["held_out_own"] = ev.score_of("f1", counts, runs_R & ev.halves.score)
    row["held_out_all"] = ev.score_of("f1", counts, ev.halves.score)
    return row
