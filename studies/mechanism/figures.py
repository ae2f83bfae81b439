"""Figures of the mechanism study: measurements beside the twins, and the signature table as a heat map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from rmetric.faults import NO_FAULT, file_name_part
from rmetric.records import Points, Run
from rmetric.reporting import style
from rmetric.reporting.style import Drawing, rendered
from rmetric.reporting.table import number
from studies.mechanism.findings import (
    HOW,
    MECHANISM_DETECTORS,
    NEVER,
    UNMEASURED,
    Case,
    MechanismResults,
    Signature,
    smoothed,
)


@dataclass(frozen=True)
class Band:
    """Median and range over several seeds; arrays of shape (n,)."""

    since_onset: NDArray[np.int64]
    middle: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def values_of(run: Run, signal: str) -> Points:
    """Steps and values of a signal where it was measured and is finite; the training loss smoothed."""
    column = run.observations[signal]
    if signal == "training_loss":
        column = smoothed(column)
    measured = np.isfinite(column)
    return run.observations.step[measured], column[measured]


def band(results: MechanismResults, signal: str, indices: Sequence[int], *, twins: bool, every: int) -> Band:
    """A signal of some faulty runs, or of their twins, over the steps since their onsets.

    Seeds have their onsets at different steps, and are measured at multiples of the stride: each is interpolated to
    common steps, as far as it was measured. The band ends with the twin that ends first, for a median jumps where a
    seed drops out; a run that broke off leaves the rest to the others.

    Parameters
    ----------
    indices
        Faulty runs of one case.
    twins
        Their twins instead.
    every
        Steps between the points of the curve.
    """
    curves: list[Points] = []
    ends: list[int] = []
    for index in indices:
        onset, whole = results.truths[index].onset, values_of(results.twin_of(index), signal)
        steps, values = whole if twins else values_of(results.runs[index], signal)
        if onset is not None and len(steps) and len(whole[0]):
            curves.append((steps - onset, values))
            ends.append(int(whole[0][-1]) - onset)
    if not curves:
        nothing = np.empty(0)
        return Band(np.empty(0, np.int64), nothing, nothing, nothing)
    first = max(int(steps[0]) for steps, _ in curves)
    at = np.arange(-(-first // every) * every, min(ends) + 1, every)
    table = np.array([np.interp(at, steps, values, right=np.nan) for steps, values in curves])
    some = ~np.isnan(table).all(axis=0)
    table, at = table[:, some], at[some]
    return Band(at, np.nanmedian(table, axis=0), np.nanmin(table, axis=0), np.nanmax(table, axis=0))


SIGNALS = (
    ("training_loss", "training loss\n(nats)", False),
    ("qk_entropy", "QK update\nentropy", False),
    ("qk_spectral_norm", "QK update\nnorm", True),
    ("attention_entropy", "attention\nentropy", False),
    ("key_norm", "longest key", False),
    ("routing_entropy", "routing\nentropy", False),
    ("router_similarity", "router\nsimilarity", False),
    ("expert_load_max", "load of the\nbusiest expert", False),
    ("update_max", "largest\nupdate", True),
    ("update_alignment", "update\nalignment", False),
)
"""Measurement, label, whether its axis is logarithmic; those that no run of a figure has are left out of it."""
PANEL_IN = 0.95
Look = tuple[str, Any]
"""Colour and line."""
LOOKS: tuple[Look, ...] = (
    (style.SKY, (0, (1, 1.2))),
    (style.GREEN, "--"),
    (style.BLUE, "-"),
    (style.VERMILION, (0, (5, 1.5, 1, 1.5))),
    (style.PURPLE, "-"),
)
BEFORE = 150
"""Steps before the onset that are shown."""
LOSS_ROOM = 1.6
"""A training loss is shown up to so many times the largest one of the twins."""


def draw_all(results: MechanismResults) -> list[Drawing]:
    """A figure for each fault, in the order of the study."""
    return [draw(results, fault) for fault in dict.fromkeys(case.fault for case in results.faulty_cases)]


def draw(results: MechanismResults, fault: str) -> Drawing:
    cases = [case for case in results.cases if case.fault == fault]
    name = f"signals_{file_name_part(fault).replace('-', '_')}"
    return Drawing(name, f"{fault}: what the monitors measured", _caption(results), rendered(figure(results, cases)))


@style.styled
def figure(results: MechanismResults, cases: Sequence[Case]) -> Figure:
    """A row a signal, a column a model and batch size."""
    groups = list(dict.fromkeys((case.model, case.rows) for case in cases))
    signals = [item for item in SIGNALS if _measured(results, cases, item[0])]
    looks = dict(zip(dict.fromkeys(case.strength for case in cases), LOOKS * 3, strict=False))
    made = style.new_figure(PANEL_IN * len(signals) + 0.75)
    axes = made.subplots(len(signals), len(groups), sharex="col", sharey="row", squeeze=False)
    for column, group in enumerate(groups):
        own = [case for case in cases if (case.model, case.rows) == group]
        for row, (signal, label, logarithmic) in enumerate(signals):
            ax = axes[row, column]
            _panel(ax, results, own, signal, looks)
            if column == 0:
                ax.set_ylabel(label)
            if not logarithmic:
                style.plain_numbers(ax, "y", bins=3)
        axes[0, column].set_title(f"{group[0]}, batch {group[1]}", loc="left")
        style.plain_numbers(axes[-1, column], "x", bins=5)
        axes[-1, column].set_xlabel("steps since the onset")
    for row, (_, _, logarithmic) in enumerate(signals):
        if logarithmic:
            _log_axes(axes[row])
    _limit_loss(axes[0], results, cases)
    _legend(made, looks)
    made.align_ylabels()
    return made


def _measured(results: MechanismResults, cases: Sequence[Case], signal: str) -> bool:
    return any(results.runs[index].observations.has(signal) for case in cases for index in results.cases[case])


def _panel(ax: Axes, results: MechanismResults, cases: Sequence[Case], signal: str, looks: dict[str, Look]) -> None:
    every = 1 if signal == "training_loss" else 5
    healthy = band(results, signal, results.cases[cases[0]], twins=True, every=every)
    shown = healthy.since_onset >= -BEFORE
    ax.fill_between(
        healthy.since_onset[shown], healthy.low[shown], healthy.high[shown], color="#CFCFCF", linewidth=0, zorder=1
    )
    ax.plot(healthy.since_onset[shown], healthy.middle[shown], color=style.GREY, linewidth=1.0, zorder=2)
    for case in cases:
        color, line = looks[case.strength]
        found = band(results, signal, results.cases[case], twins=False, every=every)
        after = found.since_onset >= 0
        steps = found.since_onset[after]
        ax.fill_between(steps, found.low[after], found.high[after], color=color, alpha=0.18, linewidth=0, zorder=3)
        ax.plot(steps, found.middle[after], color=color, linestyle=line, zorder=4)
        left = results.incubation(case)
        if left.defined:
            ax.axvline(left.value, color=color, linestyle=line, linewidth=0.8, alpha=0.9, zorder=2)
    ax.axvline(0, color=style.BLACK, linewidth=0.8, zorder=2)
    if not len(healthy.since_onset):
        style.say(ax, "not measured")


def _log_axes(axes: np.ndarray) -> None:
    """A row of panels that share a logarithmic axis; the shorter it is, the more labels between the powers of ten."""
    for ax in axes:
        style.log_axis(ax, "y", ticks=4)
        low, high = ax.get_ylim()
        if high < 4.0 * low:
            ax.yaxis.set_major_locator(MaxNLocator(nbins=3))
            ax.yaxis.set_minor_locator(NullLocator())
        elif high < 100.0 * low:
            ax.yaxis.set_major_locator(LogLocator(base=10.0, subs=(1.0, 2.0, 5.0) if high < 10.0 * low else (1.0, 3.0)))


def _limit_loss(axes: np.ndarray, results: MechanismResults, cases: Sequence[Case]) -> None:
    """A loss that has left is not to press all others together."""
    tops, bottoms = [], []
    for case in cases:
        healthy = band(results, "training_loss", results.cases[case], twins=True, every=5)
        shown = healthy.since_onset >= -BEFORE
        tops.append(healthy.high[shown].max(initial=0.0))
        bottoms.append(healthy.low[shown].min(initial=np.inf))
    axes[0].set_ylim(0.95 * min(bottoms), LOSS_ROOM * max(tops))


def _legend(made: Figure, looks: dict[str, Look]) -> None:
    handles: list[Line2D | Patch] = [Patch(color="#CFCFCF", label="healthy twins")]
    handles += [
        Line2D([], [], color=color, linestyle=line, label=strength) for strength, (color, line) in looks.items()
    ]
    made.legend(handles=handles, loc="outside upper left", ncols=len(handles), handlelength=2.4, columnspacing=1.2)


def _caption(results: MechanismResults) -> str:
    seeds = len(set(results.repetition.tolist()))
    return (
        f"Line: median over {seeds} seeds; band: their range. They end where the first seed ends, for onsets differ; a "
        "run that broke off is in them up to its last step. Grey: the healthy twins of the same seeds. Black vertical "
        "line: the onset; coloured vertical lines: median step at which the held-out loss of that strength left its "
        "twin's for good, where it did. The training loss is its mean over 20 steps, cut off where it is far above the "
        "twins'. Of several layers, heads, tensors or experts each measurement is the worst one."
    )


NAME, TITLE = "signature_map", "Signatures"
COLORS = LinearSegmentedColormap.from_list("share", ["#FFFFFF", style.SKY, style.BLUE])
SHORT = {"LOW_PRECISION_ATTENTION": "rounding", "LARGE_LR": "rate", "ROUTER_IMBALANCE": "imbalance",
         "EXPERT_FAILURE": "failed"}  # fmt: skip
"""Fault → its name in the rows."""
ROW_IN = 0.285
"""Room for two lines."""
DARK = 0.6
"""Share from which on text is white."""


def draw_heat_map(results: MechanismResults) -> Drawing:
    caption = (
        "Colour: share of the seeds in which the detector fired at the onset or later. Number: median steps from that "
        "alarm to the step at which the held-out loss left the twin's for good (negative: the alarm came later); "
        f"{NEVER}: it fired and the loss never left; {UNMEASURED}: not measured. Left of the black line: detectors "
        "that read the mechanism; right of it: those of what any run logs. Rows: fault, strength, model and batch "
        f"({', '.join(f'{short}: {fault}' for fault, short in SHORT.items())}); last the healthy twins, over "
        f"the same steps as their forks. {HOW['fitted']}"
    )
    return Drawing(NAME, TITLE, caption, rendered(heat_map(results)))


@style.styled
def heat_map(results: MechanismResults) -> Figure:
    """Rows: faults by strength; columns: detectors, those of the mechanism first."""
    cases, names = list(results.cases), list(results.detectors)
    made = style.new_figure(ROW_IN * len(cases) + 2.1)
    ax = made.subplots()
    cells = [[results.signature(case, name, "fitted") for name in names] for case in cases]
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
    titles = [results.detectors[name].title for name in names]
    ax.set_xticks(range(len(names)), titles, rotation=55, ha="left", rotation_mode="anchor")
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
    parts = case.fault.split("+")
    fault = " + ".join(SHORT.get(part, part.lower()) for part in parts)
    # The longest labels take two lines, so that the numbers have room in their cells.
    between = " " if len(parts) == 1 else "\n"
    return f"{fault}{between}{case.strength} ({case.model.removeprefix('tiny-')}, {case.rows})"


def _text(cell: Signature) -> str:
    if not cell.seeds:
        return UNMEASURED
    if not cell.fired:
        return ""
    return number(cell.lead.value, 0) if cell.lead.defined else NEVER
