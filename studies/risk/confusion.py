"""Confusion matrix of the diagnosis, at the alert and some steps later."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rmetric.evaluation.evaluator import Evaluator
from rmetric.reporting import style
from rmetric.reporting.style import Drawing, rendered
from studies.risk.quality import AFTER, Judged, confusion_frame
from studies.risk.tables import described, judge

NAME, TITLE = "figure_7_confusion", "Figure 7: Confusion matrix of the diagnosis"
SHOWN = (AFTER[0], AFTER[-1])
"""Steps after the alert; the table has those between."""
DARK = 0.55
"""Share of a row from which on its number is white on dark."""


def draw(ev: Evaluator, footnote: str = "") -> Drawing:
    """The figure, by the shipped model."""
    return draw_judged(judge(ev), footnote)


def draw_judged(judged: Judged, footnote: str = "") -> Drawing:
    """The figure, by any model."""
    return Drawing(NAME, TITLE, _caption(judged), rendered(figure(judged, footnote)))


@style.styled
def figure(judged: Judged, footnote: str = "") -> Figure:
    """Two matrices side by side: rows are true families, columns answers, shades shares of the row."""
    frame = confusion_frame(judged)
    true = list(dict.fromkeys(frame["true"].tolist()))
    made = style.new_figure(1.5 + 0.25 * len(true))
    axes = made.subplots(1, len(SHOWN), sharey=True)
    for index, (ax, after) in enumerate(zip(axes, SHOWN, strict=True)):
        style.letter(ax, index, "at the alert" if after == 0 else f"{after} steps later")
        _matrix(ax, frame[frame["after"] == after], true)
    axes[0].set_ylabel("true family")
    style.footnote(made, footnote)
    return made


def _matrix(ax: Axes, frame: pd.DataFrame, true: list[str]) -> None:
    answers = list(dict.fromkeys(frame["predicted"].tolist()))
    counts_TA = frame["alerts"].to_numpy(dtype=np.float64).reshape(len(true), len(answers))
    share_TA = counts_TA / np.maximum(counts_TA.sum(axis=1, keepdims=True), 1.0)
    ax.imshow(share_TA, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    for row, column in np.argwhere(counts_TA > 0).tolist():
        color = "white" if share_TA[row, column] > DARK else style.BLACK
        ax.text(column, row, f"{int(counts_TA[row, column])}", ha="center", va="center", color=color)
    ax.set_xticks(range(len(answers)), answers, rotation=90)
    ax.set_yticks(range(len(true)), true)
    for row, alerts in enumerate(counts_TA.sum(axis=1).tolist()):
        ax.text(1.02, row, f"{int(alerts)}", transform=ax.get_yaxis_transform(), va="center", color=style.GREY)
    ax.text(1.02, -0.75, "alerts", transform=ax.get_yaxis_transform(), va="center", color=style.GREY)
    ax.set_xlabel("answer")
    for place in (*np.arange(0.5, len(true) - 1),):
        ax.axhline(place, color="white", linewidth=0.8)
    for place in (*np.arange(0.5, len(answers) - 1),):
        ax.axvline(place, color="white", linewidth=0.8)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    ax.tick_params(length=0)


def _caption(judged: Judged) -> str:
    bar = judged.model.parameters.families.bar
    return (
        "Confusion matrix of the diagnosis on runs that the model was not fitted to: alerts by true fault family (rows)"
        " and answer (columns); shade: share of the row. Unknown: no family reaches a probability of "
        f"{bar:g}, a bar chosen on the fit half. Right: runs that have failed or ended by then are left out, so that "
        f"there may be fewer. {described(judged)}"
    )
