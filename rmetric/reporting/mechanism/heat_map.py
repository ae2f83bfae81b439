"""The signature table as a picture: who fires for what, and how early."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from rmetric.evaluation.scores import Score
from rmetric.faults import NO_FAULT
from rmetric.reporting.figures import style
from rmetric.reporting.figures.save import Drawing, rendered
from rmetric.reporting.formats import number
from rmetric.reporting.mechanism.findings import MECHANISM_DETECTORS, Case, Kind, MechanismResults, Signature
from rmetric.reporting.mechanism.tables import HOW, NEVER, UNMEASURED

NAME, TITLE = "signature_map", "Signatures"
COLORS = LinearSegmentedColormap.from_list("share", ["#FFFFFF", style.SKY, style.BLUE])
SHORT = {"LOW_PRECISION_ATTENTION": "low prec.", "LARGE_LR": "large rate", "ROUTER_IMBALANCE": "imbalance",
         "EXPERT_FAILURE": "expert failure"}  # fmt: skip
ROW_IN = 0.235
DARK = 0.6
"""From this share on, text is white."""


def draw(results: MechanismResults, kind: Kind = "fitted") -> Drawing:
    """The heat map."""
    caption = (
        "Colour: share of the seeds in which the detector fired at the onset or later. Number: median steps from that "
        "alarm to the step at which the held-out loss left the twin's for good (negative: the alarm came later); "
        f"{NEVER}: it fired and the loss never left; {UNMEASURED}: not measured. Last rows: the healthy twins, over "
        f"the same steps as their forks. {HOW[kind]}"
    )
    return Drawing(NAME, TITLE, caption, rendered(figure(results, kind)))


@style.styled
def figure(results: MechanismResults, kind: Kind = "fitted") -> Figure:
    """Rows: faults by strength; columns: detectors, those of the mechanism first."""
    cases, names = list(results.cases), list(results.detectors)
    made = style.new_figure(ROW_IN * len(cases) + 2.1)
    ax = made.subplots()
    cells = [[results.signature(case, name, kind) for name in names] for case in cases]
    shares = np.array([[cell.fired / cell.seeds if cell.seeds else np.nan for cell in row] for row in cells])
    picture = ax.imshow(np.ma.masked_invalid(shares), cmap=COLORS, vmin=0.0, vmax=1.0, aspect="auto")
    for y, row in enumerate(cells):
        for x, cell in enumerate(row):
            color = "white" if cell.seeds and cell.fired / cell.seeds >= DARK else style.BLACK
            ax.text(x, y, _text(cell), ha="center", va="center", color=color)
    _name_axes(ax, results, cases, names)
    bar = made.colorbar(picture, ax=ax, location="bottom", shrink=0.5, aspect=40, pad=0.02)
    bar.set_label("share of seeds that fired")
    return made


def _name_axes(ax: Axes, results: MechanismResults, cases: list[Case], names: list[str]) -> None:
    ax.set_xticks(range(len(names)), [results.detectors[name].title for name in names], rotation=40, ha="left")
    ax.tick_params(axis="x", top=True, labeltop=True, bottom=False, labelbottom=False)
    ax.set_yticks(range(len(cases)), [_label(case) for case in cases])
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.axvline(len([name for name in names if name in MECHANISM_DETECTORS]) - 0.5, color=style.BLACK, linewidth=1.0)
    for y, (above, below) in enumerate(pairwise(cases)):
        if (above.fault, above.model, above.rows) != (below.fault, below.model, below.rows):
            ax.axhline(y + 0.5, color=style.GREY, linewidth=0.5)


def _label(case: Case) -> str:
    if case.fault == NO_FAULT:
        return f"{case.strength} ({case.model.removeprefix('tiny-')}, {case.rows})"
    fault = " + ".join(SHORT.get(part, part.lower()) for part in case.fault.split("+"))
    return f"{fault} {case.strength} ({case.model.removeprefix('tiny-')}, {case.rows})"


def _text(cell: Signature) -> str:
    if not cell.seeds:
        return UNMEASURED
    if not cell.fired:
        return ""
    return _steps(cell.lead)


def _steps(score: Score) -> str:
    return number(score.value, 0) if score.defined else NEVER
