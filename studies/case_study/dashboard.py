"""The dashboard of a case study: one column a run, from the held-out loss that decides down to R.

Time is counted from the onset and is logarithmic beyond ten steps on either side of it: a run that fails two steps
after its onset and one that takes three hundred are both legible, and so are the alerts long before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from numpy.typing import NDArray

from rmetric.evaluation.evaluator import REFERENCE
from rmetric.evaluation.ground_truth import TOLERANCE
from rmetric.evaluation.protocols import ABSORBED, HEALTHY, WARNING
from rmetric.records import step_of
from rmetric.replay.plot import LARGEST_DRAWN
from rmetric.reporting import style
from rmetric.reporting.style import Drawing, rendered
from studies.case_study.findings import CaseResults

NAME, TITLE = "dashboard", "Case study: dashboard"
COLUMNS, BLOCKS = 3, 2
"""Runs side by side, and rows of runs, on one page at most."""
LINEAR_STEPS = 10
"""Steps on either side of the onset within which time is linear."""
LINEAR_PCT = 10.0
"""Up to there, the distance to the twin is on a linear scale."""
STRETCH = 1.35
"""Panels are so much taller where there is one row of runs only."""
LETTERS_PER_IN = 15.5
"""Width of a text of 8 points."""
LEGEND_IN, LINE_IN, TIME_IN = 0.72, 0.135, 0.42
"""Height of the legend, of a line of a title, and of what stands below a run."""
LEFT_IN, RIGHT_IN, GAP_IN, SPACE_IN = 1.15, 0.12, 0.48, 0.08
"""Before the first run, behind the last, between two, and between two panels of one."""
TICKS = 3
"""Largest number of ticks on an axis."""
CONTROL_LOOK: dict[str, Any] = {"color": style.ORANGE, "linewidth": 1.6, "alpha": 0.7, "zorder": 2.5}
"""Wider and below, so that both are seen where they agree."""
BAND_LOOK: dict[str, Any] = {"color": style.ORANGE, "alpha": 0.25, "linewidth": 0.0, "zorder": 1}
THRESHOLD_LOOK: dict[str, Any] = {"color": style.GREY, "linewidth": 1.0, "linestyle": (0, (6, 2))}
NON_FINITE: dict[str, Any] = {
    "color": style.VERMILION, "marker": "x", "markersize": 4.5, "markeredgewidth": 1.2, "linestyle": "none",
}  # fmt: skip
ZERO: dict[str, Any] = {"color": style.VERMILION, "marker": "s", "markersize": 2.5, "linestyle": "none"}
OUTCOMES = {"clean": "does not fail", "recovered": "recovers", "censored": "undecided at the end: censored"}
MARK_LOOKS = {
    "onset": style.MARKS["onset"],
    "fault ends": style.MARKS["fault ends"],
    "failure": style.MARKS["failure"],
    "first to warn": style.MARKS["first warning"],
}
FIRST_ALERT: dict[str, Any] = {
    "color": style.BLUE, "marker": "o", "markersize": 5.0, "markerfacecolor": "none", "linestyle": "none",
}  # fmt: skip
EPISODES: dict[str, tuple[int, dict[str, Any]]] = {
    "R warns": (WARNING, {"color": style.GREEN, "marker": "^", "markersize": 5.0}),
    "R: false alarm": (HEALTHY, {"color": style.VERMILION, "marker": "v", "markersize": 5.0}),
    "R: absorbed": (ABSORBED, {"color": style.GREY, "marker": "D", "markersize": 3.5}),
}


@dataclass(frozen=True)
class Panel:
    """One row of the dashboard."""

    draw: Callable[[Axes, CaseResults, int], None]
    height_in: float
    label: str


def draw(results: CaseResults) -> list[Drawing]:
    """The dashboard, on as many pages as the runs need: ``dashboard``, or ``dashboard_1`` and so on."""
    count = len(results.runs)
    pages = max(1, math.ceil(count / (COLUMNS * BLOCKS)))
    bounds = np.linspace(0, count, pages + 1).round().astype(int).tolist()
    drawings = []
    for number, (first, last) in enumerate(pairwise(bounds), start=1):
        part = f"_{number}" if pages > 1 else ""
        of = f", page {number} of {pages}" if pages > 1 else ""
        made = page(results, range(first, last))
        drawings.append(Drawing(NAME + part, TITLE + of, _caption(results, range(first, last)), rendered(made)))
    return drawings


@style.styled
def page(results: CaseResults, shown: Sequence[int]) -> Figure:
    """One page, with the runs of these indices. Every length is in inches: measuring texts would take longest."""
    if not shown:
        return style.notice("Not drawn: there is no run.")
    blocks = math.ceil(len(shown) / COLUMNS)
    columns = math.ceil(len(shown) / blocks)
    width_in = (style.WIDTH_IN - LEFT_IN - RIGHT_IN - (columns - 1) * GAP_IN) / columns
    titles = {index: _title(results, index, round(LETTERS_PER_IN * (width_in + RIGHT_IN))) for index in shown}
    heads_in = [
        0.06 + LINE_IN * max(titles[index].count("\n") + 1 for index in shown[block * columns : (block + 1) * columns])
        for block in range(blocks)
    ]
    stretch = STRETCH if blocks == 1 else 1.0
    panels_in = sum(stretch * panel.height_in + SPACE_IN for panel in PANELS) - SPACE_IN
    height_in = LEGEND_IN + sum(heads_in) + blocks * (panels_in + TIME_IN)
    made = style.new_figure(height_in)
    made.set_layout_engine("none")
    top_in = height_in - LEGEND_IN
    for block, head_in in enumerate(heads_in):
        for column, index in enumerate(shown[block * columns : (block + 1) * columns]):
            left_in = LEFT_IN + column * (width_in + GAP_IN)
            axes = _axes(made, left_in, top_in - head_in, width_in, stretch)
            _column(axes, results, index)
            axes[0].set_title(titles[index], loc="left")
            for ax, panel in zip(axes, PANELS, strict=True):
                if column == 0:
                    ax.set_ylabel(panel.label, rotation=0, ha="right", va="center")
                    ax.yaxis.set_label_coords(-0.4 * LEFT_IN / width_in, 0.5)
        top_in -= head_in + panels_in + TIME_IN
    made.legend(handles=_legend(results), loc="upper left", bbox_to_anchor=(0.0, 1.0), ncols=4, columnspacing=1.2)
    return made


def _axes(made: Figure, left_in: float, top_in: float, width_in: float, stretch: float) -> list[Axes]:
    """The panels of one run below each other; they share their time."""
    height_in = made.get_figheight()
    axes: list[Axes] = []
    for panel in PANELS:
        panel_in = stretch * panel.height_in
        top_in -= panel_in
        place = (left_in / style.WIDTH_IN, top_in / height_in, width_in / style.WIDTH_IN, panel_in / height_in)
        axes.append(made.add_axes(place, sharex=axes[0] if axes else None))
        top_in -= SPACE_IN
    for ax in axes[:-1]:
        ax.tick_params(axis="x", labelbottom=False)
    return axes


def _column(axes: Sequence[Axes], results: CaseResults, index: int) -> None:
    """One run, top to bottom."""
    for ax, panel in zip(axes, PANELS, strict=True):
        panel.draw(ax, results, index)
        for mark, step in _marks(results, index).items():
            if step is not None:
                ax.axvline(step - _zero(results, index), zorder=1.5, **MARK_LOOKS[mark])
    _time_axis(axes[-1], results, index)


# --- Time ------------------------------------------------------------------------------------------------------------


def _zero(results: CaseResults, index: int) -> int:
    """The step that time is counted from: the onset of the run, of the others for a control, or 0."""
    own = results.truths[index].onset
    if own is not None:
        return own
    others = [truth.onset for truth in results.truths if truth.onset is not None]
    return int(np.median(others)) if others else 0


def _time_axis(ax: Axes, results: CaseResults, index: int) -> None:
    zero = _zero(results, index)
    steps = results.runs[index].observations.step
    first = (int(steps[0]) if len(steps) else 0) - zero
    last = max(results.truths[index].horizon - zero, first + 1)
    if not zero:
        ax.set_xlim(first, last)
        style.steps_axis(ax)
        return
    ax.set_xscale("symlog", linthresh=LINEAR_STEPS, linscale=1.0)
    ax.set_xlim(first, last)
    powers = [10**power for power in range(1, 1 + int(math.log10(max(-first, last, LINEAR_STEPS))))]
    ticks = [tick for tick in (*(-power for power in reversed(powers)), 0, *powers) if first <= tick <= last]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{'+' if tick > 0 else ''}{style.plain(tick)}"))
    ax.set_xlabel(f"steps since step {zero:,}")


def _marks(results: CaseResults, index: int) -> dict[str, int | None]:
    run, truth = results.runs[index], results.truths[index]
    return {
        "onset": truth.onset,
        "fault ends": step_of(run.first("FAULT_CLEARED")),
        "failure": truth.failure_step,
        "first to warn": results.earliest_warning(index)[1],
    }


# --- Panels ----------------------------------------------------------------------------------------------------------


def _held_out(ax: Axes, results: CaseResults, index: int) -> None:
    """Excess of the held-out loss over the twin's, which decides whether the run failed."""
    study, zero = results.study, _zero(results, index)
    own, twin = (
        np.array(study.held_out.get(name, []), dtype=np.float64) for name in (results.runs[index].name, "twin")
    )
    ax.axhspan(0.0, 100.0 * TOLERANCE, **BAND_LOOK)
    ax.set_yscale("symlog", linthresh=LINEAR_PCT, linscale=1.0)
    if len(own) == len(twin) == len(study.judged_steps) > 0:
        judged = np.array(study.judged_steps, dtype=np.float64) - zero
        excess = 100.0 * (own / twin - 1.0)
        # stands from the step that was judged to the next one: a straight line would rise before the fault
        _line(ax, judged, excess, drawstyle="steps-post", **{**style.RUN_LOOK, "linewidth": 1.3})
        _mark_non_finite(ax, judged, excess)
    else:
        style.say(ax, "not judged")
    low, high = ax.get_ylim()
    low, high = min(low, -0.4 * LINEAR_PCT), max(high, 1.3 * LINEAR_PCT)
    powers = [10.0**power for power in range(1, 1 + max(1, int(math.log10(high))))]
    ax.set_ylim(low, high)
    ax.yaxis.set_major_locator(FixedLocator([0.0, *powers[:: math.ceil(len(powers) / (TICKS - 1))]]))
    ax.yaxis.set_major_formatter(FuncFormatter(style.short))
    ax.yaxis.set_minor_locator(NullLocator())


def _signal(name: str, log_from: float) -> Callable[[Axes, CaseResults, int], None]:
    """A panel of one measurement, above that of the control; logarithmic from a ratio of ``log_from``."""

    def panel(ax: Axes, results: CaseResults, index: int) -> None:
        observations, zero = results.runs[index].observations, _zero(results, index)
        if not observations.has(name):
            style.say(ax, "not in this log")
            ax.set_yticks([])
            return
        values, logarithmic = observations[name], log_from < math.inf
        if results.control not in (None, index):
            healthy = results.runs[results.control].observations
            _line(ax, healthy.step - zero, healthy[name], logarithmic=logarithmic, **CONTROL_LOOK)
        _line(ax, observations.step - zero, values, logarithmic=logarithmic, **style.RUN_LOOK)
        _mark_non_finite(ax, observations.step - zero, values)
        if name == "grad_norm":
            exact = (observations.step - zero)[values == 0.0]
            ax.plot(exact, np.full(len(exact), 0.1), transform=ax.get_xaxis_transform(), **ZERO)
        _scale(ax, log_from=log_from)

    return panel


def _r_metric(ax: Axes, results: CaseResults, index: int) -> None:
    observations, zero = results.runs[index].observations, _zero(results, index)
    r = np.asarray(results.r_metric[index].r)
    _line(ax, observations.step - zero, r, **style.RUN_LOOK)
    ax.axhline(results.evaluator.detectors[REFERENCE].threshold, **THRESHOLD_LOOK)
    alert = results.first_alert(index, REFERENCE)
    if alert is not None:
        ax.plot([alert - zero], [1.3], zorder=4, **FIRST_ALERT)
    for zone, look in EPISODES.values():
        steps = np.array(results.episodes(index, REFERENCE, zone), dtype=np.int64) - zero
        ax.plot(steps, np.full(len(steps), 1.3), linestyle="none", zorder=4, clip_on=False, **look)
    ax.set_ylim(-0.05, 1.45)
    ax.set_yticks([0.0, 0.5, 1.0])


PANELS = (
    Panel(_held_out, 0.55, "held out\n(% > twin)"),
    Panel(_signal("training_loss", 8.0), 0.42, "training\nloss (nats)"),
    Panel(_signal("grad_norm", 1.0), 0.42, "gradient\nnorm"),
    Panel(_signal("sigma_sq", 1.0), 0.38, "σ²\n(norm²)"),
    Panel(_signal("delta_l", math.inf), 0.36, "ΔL\n(nats)"),
    Panel(_signal("lambda", math.inf), 0.26, "λ (per h)"),
    Panel(_r_metric, 0.42, "R\n(0 to 1.25)"),
)


def _line(ax: Axes, x: NDArray[Any], values: NDArray[np.float64], *, logarithmic: bool = False, **look: Any) -> None:
    """A curve with gaps where a value is not finite, or is 0 on a logarithmic axis."""
    shown = np.where(np.isinf(values), np.nan, np.clip(values, -LARGEST_DRAWN, LARGEST_DRAWN))
    ax.plot(x, np.where(shown > 0, shown, np.nan) if logarithmic else shown, **look)


def _mark_non_finite(ax: Axes, x: NDArray[Any], values: NDArray[np.float64]) -> None:
    broken = x[np.isinf(values)]
    ax.plot(broken, np.full(len(broken), 0.9), transform=ax.get_xaxis_transform(), zorder=4, **NON_FINITE)


def _scale(ax: Axes, *, log_from: float) -> None:
    """A logarithmic axis where the largest value is so many times the smallest, with plain numbers on either."""
    drawn = [np.asarray(line.get_ydata(), dtype=float) for line in ax.lines if line.get_transform() == ax.transData]
    values = np.concatenate([*drawn, np.empty(0)])
    values = values[np.isfinite(values)]
    if not len(values):
        style.say(ax, "nothing finite")
        ax.set_yticks([])
        return
    if log_from < math.inf and 0 < log_from * values.min() <= values.max():
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(FixedLocator(style.log_ticks(*ax.get_ylim(), most=TICKS)))
        ax.yaxis.set_minor_locator(NullLocator())
    else:
        if values.min() == values.max():  # a flat line needs no scale of its own
            ax.set_ylim(values.min() - 0.2, values.min() + 1.0)
        ax.yaxis.set_major_locator(MaxNLocator(nbins=TICKS - 1))
    ax.yaxis.set_major_formatter(FuncFormatter(style.short))


# --- Words -----------------------------------------------------------------------------------------------------------


def _title(results: CaseResults, index: int, width: int) -> str:
    """Which fault, and what came of it, in lines of so many letters."""
    truth = results.truths[index]
    lines = [f"({chr(ord('a') + index % 26)}) {results.titles[index]}"]
    if truth.kind != "failed" or truth.failure_step is None:
        lines.append(OUTCOMES.get(truth.kind, truth.kind))
    else:
        plural = "" if truth.incubation == 1 else "s"
        after = (
            f"at step {truth.failure_step:,}"
            if truth.incubation is None
            else f"after {truth.incubation:,} step{plural}"
        )
        lines.append(f"{truth.reason or 'failed'} {after}")
        names, step = results.earliest_warning(index)
        more = f" (+{len(names) - 1})" if len(names) > 1 else ""
        lines.append("no warning" if step is None else f"{names[0]}{more}, lead {truth.failure_step - step:,}")
    return "\n".join(style.broken(line, width) for line in lines)


def _legend(results: CaseResults) -> list[Line2D | Patch]:
    control = [] if results.control is None else [Line2D([], [], label="control", **CONTROL_LOOK)]
    return [
        Line2D([], [], label="run", **style.RUN_LOOK),
        *control,
        Patch(label=f"up to {100 * TOLERANCE:.0f} % over twin", **BAND_LOOK),
        *(Line2D([], [], label=name, **look) for name, look in MARK_LOOKS.items()),
        Line2D([], [], label="threshold of R", **THRESHOLD_LOOK),
        Line2D([], [], label="R: first alert (paper)", **FIRST_ALERT),
        *(Line2D([], [], label=f"{name} (strict)", linestyle="none", **look) for name, (_, look) in EPISODES.items()),
        Line2D([], [], label="not finite", **NON_FINITE),
        Line2D([], [], label="exactly 0", **ZERO),
    ]


def _caption(results: CaseResults, shown: Sequence[int]) -> str:
    runs = "; ".join(f"({chr(ord('a') + index % 26)}) {results.study.plan.faults[index]}" for index in shown)
    return (
        f"One column a run, forked from the same healthy run: {runs}. Time is counted from the onset, linear within "
        f"{LINEAR_STEPS} steps of it and logarithmic beyond. Held out: loss on one fixed batch, in per cent above that "
        f"of the fault-free twin (linear up to {LINEAR_PCT:.0f} %); a run that stays more than "
        f"{100 * TOLERANCE:.0f} % above it to the end has failed. Training loss, gradient norm before clipping, σ², ΔL "
        "and λ as logged, those of the control behind; R with the published weights and threshold, recomputed from the "
        "log, with its alert episodes. An episode in the healthy steps that all runs share is counted and drawn once. "
        "First to warn: the causal detector with the earliest warning under the strict protocol, its name and lead in "
        "steps above the run; in brackets, how many more warned in the same step. A cross: not finite."
    )
