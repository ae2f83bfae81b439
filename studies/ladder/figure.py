"""Figure of the ladder: F1 on every rung, and with each condition alone given up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from rmetric.reporting import style
from rmetric.reporting.style import Drawing, rendered
from studies.captions import PAPER_F1
from studies.ladder.rungs import Result

NAME, TITLE = "figure_ladder", f"Where {PAPER_F1} comes from"
TITLE_WIDTH = 44
"""Characters of a rung's title in a line."""


def draw(results: Sequence[Result], caption: str) -> Drawing:
    return Drawing(NAME, TITLE, caption, rendered(figure(results)))


@style.styled
def figure(results: Sequence[Result]) -> Figure:
    """One bar a rung, from the author's conditions at the top to real training at the bottom."""
    drawn = style.new_figure(0.42 * len(results) + 0.9)
    ax = drawn.subplots()
    place = np.arange(len(results))
    values = [result.summary["f1"] for result in results]
    colors = [style.SKY] + ["#BDBDBD"] * (len(results) - 2) + [style.BLUE]
    ax.barh(place, [score.value for score in values], color=colors, height=0.62)
    for at, score in enumerate(values):
        if score.has_interval:
            ax.plot([score.low, score.high], [at, at], color=style.BLACK, linewidth=0.9)
        ax.text(
            max(score.value, score.high if score.has_interval else 0.0) + 0.012,
            at,
            f"{score.value:.3f}",
            va="center",
            bbox=style.GROUND,
            zorder=1.9,
        )
    alone = [(at, result.alone) for at, result in enumerate(results) if result.alone is not None and at > 1]
    ax.plot(
        [score.value for _, score in alone], [at for at, _ in alone], "D", color=style.VERMILION, markersize=4.5,
        linestyle="none", clip_on=False, zorder=3, label="with this alone",
    )  # fmt: skip
    ax.axvline(PAPER_F1, color=style.BLACK, linewidth=0.8, linestyle=":", zorder=1.5, label=f"the paper: {PAPER_F1}")
    labels = [f"+ {result.title}" if at else result.title for at, result in enumerate(results)]
    ax.set_yticks(place, [style.broken(label, TITLE_WIDTH) for label in labels])
    ax.invert_yaxis()
    ax.set_xlim(0.0, 1.12)
    ax.set_xlabel("F1 of the R-Metric, 95 % interval")
    drawn.legend(loc="outside upper right", ncols=2)
    return drawn
