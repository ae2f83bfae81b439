"""Figures 6 and 7: reliability of the risk, and confusion matrices of the diagnosis."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from rmetric.evaluation.scores import Score
from rmetric.reporting import style
from rmetric.reporting.style import Drawing, rendered
from studies.risk.quality import (
    AFTER,
    HEALS,
    SUBSETS,
    Judged,
    brier_frame,
    confusion_frame,
    healing_frame,
    reliability_frame,
)
from studies.risk.tables import SKILL, described, intervals

RELIABILITY_NAME, RELIABILITY_TITLE = "figure_6_reliability", "Figure 6: Reliability of the risk"
DIAGRAMS_ABREAST = 3
HEIGHTS = (3.0, 1.0)
"""Heights of a diagram and of the numbers of runs below it."""
CONFUSION_NAME, CONFUSION_TITLE = "figure_7_confusion", "Figure 7: Confusion matrix of the diagnosis"
HEALED = "skill, alerts in all runs (heals)"
SHOWN = (AFTER[0], AFTER[-1])
"""Steps after the alert; the table has those between."""


def draw_reliability(judged: Judged, footnote: str = "") -> Drawing:
    name, title = RELIABILITY_NAME, RELIABILITY_TITLE
    return Drawing(name, title, _reliability_caption(judged), rendered(reliability(judged, footnote)))


@style.styled
def reliability(judged: Judged, footnote: str = "") -> Figure:
    """A diagram a question, how many runs each of its points stands for below it; last, the skill of each."""
    frame = reliability_frame(judged)
    questions = [*(judged.question(steps) for steps in judged.horizons), HEALS]
    rows = -(-(len(questions) + 1) // DIAGRAMS_ABREAST)
    made = style.new_figure(2.75 * rows + 0.1)
    axes = made.subplots(2 * rows, DIAGRAMS_ABREAST, height_ratios=HEIGHTS * rows, squeeze=False)
    for index, question in enumerate(questions):
        row, column = divmod(index, DIAGRAMS_ABREAST)
        above, below = axes[2 * row, column], axes[2 * row + 1, column]
        style.letter(above, index, question)
        _diagram(above, frame[frame["question"] == question])
        _runs(below, frame[frame["question"] == question])
        if column == 0:
            above.set_ylabel("came true (share)")
            below.set_ylabel("runs")
    grid = axes[0, 0].get_gridspec()
    for index in range(len(questions), rows * DIAGRAMS_ABREAST):
        row, column = divmod(index, DIAGRAMS_ABREAST)
        axes[2 * row, column].remove()
        axes[2 * row + 1, column].remove()
        if index == len(questions):
            last = made.add_subplot(grid[2 * row : 2 * row + 2, column])
            style.letter(last, index, "skill")
            _skill(last, judged)
    style.footnote(made, footnote)
    return made


def _diagram(ax: Axes, frame: pd.DataFrame) -> None:
    ax.plot([0, 1], [0, 1], color=style.GREY, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    _unit(ax, "x")
    _unit(ax, "y")
    ax.tick_params(labelbottom=False)
    ax.grid(visible=True)
    if frame.empty:
        style.say(ax, "not defined: no such record")
        return
    predicted, observed = frame["predicted"].to_numpy(), frame["observed"].to_numpy()
    low, high = (np.where(np.isnan(frame[end]), observed, frame[end]) for end in ("low", "high"))
    drawn = ax.errorbar(predicted, observed, yerr=np.stack([observed - low, high - observed]).clip(0.0),
                        color=style.BLUE, marker="o", linewidth=1.0, elinewidth=0.9, capsize=1.8, zorder=3)  # fmt: skip
    for artist in drawn.get_children():  # points at 0 and 1 are whole
        artist.set_clip_on(False)


def _runs(ax: Axes, frame: pd.DataFrame) -> None:
    _unit(ax, "x")
    ax.set_xlabel("said (probability)")
    ax.vlines(frame["predicted"], 0.7, frame["runs"], color=style.BLUE, linewidth=2.2)
    style.log_axis(ax, "y", ticks=4)
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_ylim(0.7, max([10.0, *(1.6 * frame["runs"])]))


def _skill(ax: Axes, judged: Judged) -> None:
    risk, heals = brier_frame(judged), healing_frame(judged)
    looks = dict(zip(SUBSETS, (style.Look(style.BLUE, "-", "o"), style.Look(style.VERMILION, "-", "s")), strict=True))
    labels = [judged.question(steps) for steps in judged.horizons]
    for place, (subset, look) in enumerate(looks.items()):
        scores = risk.loc[risk["subset"] == subset, "skill"].tolist()
        _points(ax, np.arange(len(scores)) + 0.3 * place, scores, look)
    healing = heals.loc[heals["runs_asked"] == "all runs", "skill"].tolist()
    at = len(labels) + np.arange(len(AFTER))
    healed = style.Look(style.GREEN, "-", "D")
    _points(ax, at + 0.15, healing, healed)
    labels += ["heals, at the alert", *(f"heals, {after} steps after it" for after in AFTER[1:])]
    for place, label in enumerate(labels):  # inside, so that the columns of panels stay close to each other
        ax.text(0.03, place - 0.32, label, va="center")
    ax.set_yticks([])
    ax.set_ylim(len(labels) - 0.35, -0.65)
    ax.axvline(0.0, color=style.GREY, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    ax.set_xlim(min(-0.1, ax.get_xlim()[0]), 1.0)
    style.plain_numbers(ax, "x", bins=4)
    ax.set_xlabel("Brier skill")
    figure = ax.get_figure(root=True)
    assert figure is not None
    handles = [*(_handle(f"skill, {subset}", look) for subset, look in looks.items()), _handle(HEALED, healed)]
    figure.legend(handles=handles, loc="outside lower right", ncols=3, handletextpad=0.1, columnspacing=1.2)


def _points(ax: Axes, at: np.ndarray, scores: list[Score], look: style.Look) -> None:
    for place, score in zip(at.tolist(), scores, strict=True):
        if not score.defined:
            continue
        if score.has_interval:
            ax.plot([score.low, score.high], [place, place], color=look.color, linewidth=0.9)
        ax.plot(score.value, place, color=look.color, marker=look.marker, linestyle="none")


def _handle(text: str, look: style.Look) -> Line2D:
    return Line2D([], [], color=look.color, marker=look.marker, linestyle="none", label=text)


def _unit(ax: Axes, name: str) -> None:
    getattr(ax, f"set_{name}lim")(-0.04, 1.04)
    getattr(ax, f"set_{name}ticks")([0.0, 0.25, 0.5, 0.75, 1.0], ["0", "0.25", "0.5", "0.75", "1"])


def _reliability_caption(judged: Judged) -> str:
    return (
        "Reliability on runs that the model was not fitted to: predicted probability of each bin against the share "
        f"that came true; lines: {intervals(judged)} Dotted: perfect. Below: runs in each bin; a run "
        "has records in many. (a–d) All records, by horizon. (e) Asked at an alert and "
        f"{' and '.join(str(after) for after in AFTER[1:])} steps after it, all of these in one curve; (f) has them "
        f"apart. (f) {SKILL} {described(judged)}"
    )


def draw_confusion(judged: Judged, footnote: str = "") -> Drawing:
    name, title = CONFUSION_NAME, CONFUSION_TITLE
    return Drawing(name, title, _confusion_caption(judged), rendered(confusion(judged, footnote)))


@style.styled
def confusion(judged: Judged, footnote: str = "") -> Figure:
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
    counts = frame.pivot_table("alerts", "true", "predicted", sort=False).reindex(true)
    alerts = counts.sum(axis=1)
    shares = counts.div(alerts.clip(lower=1.0), axis=0)
    sns.heatmap(shares, ax=ax, annot=counts.astype(int).astype(str).replace("0", ""), fmt="", cmap="Blues", vmin=0.0,
                vmax=1.0, cbar=False, linewidths=0.8, linecolor="white", annot_kws={"fontsize": 8})  # fmt: skip
    style.legible(ax)
    for row, count in enumerate(alerts.tolist()):
        ax.text(1.02, row + 0.5, f"{int(count)}", transform=ax.get_yaxis_transform(), va="center", color=style.GREY)
    ax.text(1.02, -0.25, "alerts", transform=ax.get_yaxis_transform(), va="center", color=style.GREY)
    ax.set_xlabel("answer")
    ax.set_ylabel("")
    ax.tick_params(length=0)
    ax.tick_params(axis="y", rotation=0)


def _confusion_caption(judged: Judged) -> str:
    bar = judged.model.parameters.families.bar
    return (
        "Confusion matrix of the diagnosis on runs that the model was not fitted to: alerts by true fault family (rows)"
        " and answer (columns); shade: share of the row. Unknown: no family reaches a probability of "
        f"{bar:g}, a bar chosen on the fit half. Right: runs that have failed or ended by then are left out, so that "
        f"there may be fewer. {described(judged)}"
    )
