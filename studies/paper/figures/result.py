"""Figure 0, the result in one picture: the rows of the headline table as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.scores import Score
from rmetric.reporting import style
from rmetric.reporting.style import Drawing, rendered
from studies import captions
from studies.catalogue import Row
from studies.paper.tables.headline import BASELINE, rows_of

NAME, TITLE = "figure_0_result", "Figure 0: The result"
COLORS = (style.VERMILION, style.GREY, style.SKY, style.ORANGE)
"""Colours of the R-Metric and the baselines."""
HELD_OUT_COLOR = style.BLUE
PAPER_LOOK: dict[str, Any] = {
    "color": style.BLACK,
    "marker": "D",
    "markerfacecolor": "white",
    "markersize": 4.5,
    "linestyle": "none",
}
PAPER_LINE: dict[str, Any] = {"color": style.BLACK, "linewidth": 1.0, "linestyle": (0, (4, 2))}
NOTHING = Score.undefined("not scored")


def draw(studies: Mapping[str, Evaluator], footnote: str = "") -> Drawing:
    """One panel a study."""
    rows = {study: rows_of(ev) for study, ev in studies.items()}
    facts = {study: captions.runs(ev) for study, ev in studies.items()}
    arranged = f"{style.abreast(studies)} " if len(studies) > 1 else ""
    caption = (
        f"{arranged}F1 of the R-Metric as published, of the best baseline and of the robust R-Metric. Bars: strict "
        "protocol, with 95 % bootstrap intervals over runs; diamonds: paper protocol; dashed: the F1 that the paper "
        f"claims, {captions.PAPER_F1:g}. "
        f"{BASELINE} {captions.BOTH} {captions.by_study(facts)}"
    )
    return Drawing(NAME, TITLE, caption, rendered(figure(rows, footnote)))


@style.styled
def figure(rows: Mapping[str, Sequence[Row]], footnote: str = "") -> Figure:
    """Small enough to stand at the top of a page."""
    longest = max(len(each) for each in rows.values())
    made = style.new_figure(0.95 + 0.3 * longest + 0.2 * bool(footnote))
    axes = made.subplots(1, len(rows), squeeze=False)[0]
    names = [[str(row["what"]) for row in each] for each in rows.values()]
    for index, (ax, (study, each)) in enumerate(zip(axes, rows.items(), strict=True)):
        _bars(ax, each)
        ax.set_ylabel("" if index else "detector")
        ax.set_title(f"{study} runs" if study else "")
        if index and names[index] == names[0]:
            ax.tick_params(axis="y", labelleft=False)
    handles = [
        Patch(color=style.GREY, label="strict protocol, 95 % interval"),
        Line2D([], [], label="paper protocol", **PAPER_LOOK),
        Line2D([], [], label=f"the paper's claim: {captions.PAPER_F1:g}", **PAPER_LINE),
    ]
    made.legend(handles=handles, loc="outside lower right", ncols=3, columnspacing=1.4)
    style.footnote(made, footnote)
    return made


def _bars(ax: Axes, rows: Sequence[Row]) -> None:
    ax.axvline(captions.PAPER_F1, zorder=1, **PAPER_LINE)
    for y, row in enumerate(rows):
        strict, paper = (_score(row, f"f1_{protocol}") for protocol in ("strict", "paper"))
        if paper.defined:
            ax.plot(paper.value, y, zorder=4, **PAPER_LOOK)
        if not strict.defined:
            ax.text(0.02, y, f"not defined: {strict.reason}", va="center", color=style.GREY, style="italic")
            continue
        color = COLORS[y % len(COLORS)] if paper.defined else HELD_OUT_COLOR
        ends = [[strict.value - strict.low], [strict.high - strict.value]] if strict.has_interval else None
        ax.barh(y, strict.value, 0.62, xerr=ends, color=color, capsize=2.5, error_kw={"linewidth": 1.0}, zorder=2)
        _value(ax, y, strict, paper)
    ax.set_yticks(range(len(rows)), [str(row["what"]) for row in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(0.0, 1.02)
    ax.set_xticks(np.arange(0.0, 1.1, 0.25), ["0", "0.25", "0.5", "0.75", "1"])
    ax.set_xlabel("F1 (0 to 1)")
    ax.tick_params(axis="y", length=0)


def _value(ax: Axes, y: int, strict: Score, paper: Score) -> None:
    """The number, in a long bar or behind a short one; behind the diamond that it would cover."""
    inside = strict.value > 0.2
    x = 0.02 if inside else 0.03 + (strict.high if strict.has_interval else strict.value)
    if not inside and 0.0 <= paper.value - x + 0.03 < 0.2:  # a number is at most so wide, in the narrowest panel
        x = paper.value + 0.03
    color = "white" if inside else style.BLACK
    ax.text(x, y, f"{strict.value:.3f}", va="center", color=color, weight="bold", zorder=5)


def _score(row: Row, key: str) -> Score:
    found = row.get(key)
    return found if isinstance(found, Score) else NOTHING
