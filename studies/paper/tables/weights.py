"""Table 11: the R-Metric's weights, derived anew, by architecture and pooled, and how sure they are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.scores import Score, percentile_interval
from rmetric.evaluation.weights import bootstrap_weights
from rmetric.metric import RMetric
from rmetric.reporting.table import Cell, Column, Table
from rmetric.signals import Weights
from studies import captions

MOST_DRAWS = 500
"""Each resample is a whole fit; more of them change no digit that is shown."""
SIGNS = ("λ", "σ²", "ΔL")
POOLED = "all"


def tables(ev: Evaluator) -> list[Table]:
    """One row an architecture, one for all, and one with the paper's."""
    architectures = sorted({run.model_type for run in ev.study.runs})
    everything = np.ones(len(ev.timeline), bool)
    groups = {name: ev.runs_where(model_type=name) for name in architectures} if len(architectures) > 1 else {}
    rows = [_row(ev, name, runs_R) for name, runs_R in {**groups, POOLED: everything}.items()]
    paper = RMetric.paper()
    published = ev.summary_of(ev.counts_with(paper.weights, paper.threshold, "strict"), ev.halves.score)["f1"]
    rows.append(
        {
            "fitted_on": "the paper's",
            **{f"weight_{place}": Score(weight) for place, weight in enumerate(paper.weights)},
            "threshold": Score(paper.threshold),
            "held_out_all": published,
        }
    )
    columns = [
        Column("fitted_on", "Fitted on"),
        *(Column(f"weight_{place}", f"Weight of {sign}", 2, "strict") for place, sign in enumerate(SIGNS)),
        Column("threshold", "Threshold", 3, "strict"),
        Column("fit_f1", "F1, fit half", 3, "strict"),
        Column("held_out_own", "F1, its own score half", 3, "strict"),
        Column("held_out_all", "F1, whole score half", 3, "strict"),
    ]
    caption = (
        f"Weights of λ, σ² and ΔL (steps of 1/20 of their sum {sum(Weights()):g}) and threshold of highest F1 under "
        f"the "
        "strict protocol on the fit half (odd repetition or seed), scored on the other half. In brackets behind a "
        f"weight: 95 % of the weights of highest F1 in {_draws(ev):,} bootstrap resamples of the runs fitted to; the "
        f"F1 "
        "on the fit half is optimistic. A wide interval says that F1 hardly depends on that weight. Score half: "
        f"{captions.runs(ev, ev.halves.score)} {captions.interval(ev)}"
    )
    return [Table("table_11_weights", "Table 11: Weights derived anew", caption, columns, rows)]


def _draws(ev: Evaluator) -> int:
    return min(ev.draws, MOST_DRAWS)


def _row(ev: Evaluator, name: str, runs_R: NDArray[np.bool_]) -> dict[str, Cell]:
    fitted = ev.fit(runs_R, "strict")
    if fitted is None:
        nothing = Score.undefined("no run of the fit half failed")
        keys = [*(f"weight_{place}" for place in range(3)), "threshold", "fit_f1", "held_out_own", "held_out_all"]
        return {"fitted_on": name, **dict.fromkeys(keys, nothing)}
    chosen = runs_R & ev.halves.fit
    drawn_B3 = bootstrap_weights(ev.timeline, ev.signals_3N, chosen, ev.weights(chosen)[: _draws(ev)])
    counts = ev.counts_with(fitted.weights, fitted.threshold, "strict")
    intervals = [percentile_interval(drawn) for drawn in drawn_B3.T]
    row: dict[str, Cell] = {"fitted_on": name, "threshold": Score(fitted.threshold), "fit_f1": Score(fitted.f1)}
    for place, (weight, interval) in enumerate(zip(fitted.weights, intervals, strict=True)):
        row[f"weight_{place}"] = Score(weight, *interval)
    row["held_out_own"] = ev.summary_of(counts, runs_R & ev.halves.score)["f1"]
    row["held_out_all"] = ev.summary_of(counts, ev.halves.score)["f1"]
    return row
