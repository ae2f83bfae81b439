"""One figure a replayed log: losses, the three normalised signals, R with its threshold, and what happened when."""

from __future__ import annotations

import io
import textwrap
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from rmetric.files import write_atomically
from rmetric.records import NO_FAULT
from rmetric.replay import SIGNALS, PlotCurves, Replay, Series
from rmetric.reporting import style
from rmetric.reporting.style import BLACK, BLUE, MARKS, SKY, VERMILION, drawn_with

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH_IN, HEIGHT_IN, DPI = 7.2, 6.4, 150
PLACE = {"left": 0.1, "right": 0.95, "bottom": 0.16, "top": 0.92, "hspace": 0.38}
"""Panels in the figure. Fixed: every figure has the same parts, and measuring texts takes half the time. On the right
is room for half the number of a step of nine digits, which may stand at the edge of a panel."""
LINE = 118
"""Characters of a line of the summary of a run."""
LABEL_X, LOSS_LABEL_X = -0.055, -0.085
"""Place of the name of a panel, in widths of the panel."""
MOST_MARKERS = 120
"""Points a curve from which it is drawn without markers."""
LARGEST_DRAWN = 1e30
"""Values are cut here in the drawing, far beyond any axis that can be read."""
LOG_AXIS_FROM = 20.0
"""Ratio of the largest loss to the smallest from which its axis is logarithmic."""
LOSS_LOOKS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("training_loss", "training loss", {"color": SKY, "linewidth": 1.0}),
    ("validation_loss", "validation loss", {"color": BLUE, "linewidth": 1.2, "marker": "o", "markersize": 2.5}),
)
NOT_FINITE: dict[str, Any] = {
    "label": "loss not finite",
    "color": VERMILION,
    "marker": "x",
    "markersize": 5,
    "linestyle": "none",
}
FIRST, ROBUST = "first alert", "first alert, R-Metric (robust)"
MARK_LOOKS = {
    "fault": MARKS["onset"],
    "failure": MARKS["failure"],
    FIRST: MARKS["first alert"],
    ROBUST: MARKS["robust alert"],
}
OUTCOMES = {
    "clean": "did not fail",
    "ended": "reached its end",
    "recovered": "did not fail",
    "censored": "undecided at the end",
    "incomplete": "incomplete log",
    "not stated": "outcome not stated",
}


@drawn_with({})
def draw_replay(replay: Replay, curves: PlotCurves, path: Path) -> None:
    """Write the figure as PNG (1080 × 960 points, readable in print and without colour).

    Parameters
    ----------
    replay, curves
        Of a log with at least one record (``replay_log(..., trace=curves)``).
    path
        Where to; written atomically.
    """
    image = io.BytesIO()
    canvas = FigureCanvasAgg(replay_figure(replay, curves))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a run's name may have characters that no font here has
        canvas.print_png(image, pil_kwargs={"compress_level": 3})  # savefig would draw everything twice
    write_atomically(path, image.getvalue())


def replay_figure(replay: Replay, curves: PlotCurves) -> Figure:
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), dpi=DPI)
    axes = figure.subplots(5, 1, sharex=True, height_ratios=(2.4, 0.8, 0.8, 0.8, 1.9), gridspec_kw=PLACE)
    handles = _losses(axes[0], curves)
    for ax, (signal, _, color, _) in zip(axes[1:4], style.SIGNALS, strict=True):
        _signal(ax, replay, curves, signal, color)
    handles += _r_metric(axes[4], replay, curves)
    handles += _marks(axes, replay)
    for ax in axes:
        _plain(ax)
    _step_axis(axes[4], replay)
    brief = "\n".join(textwrap.wrap(_in_brief(replay), LINE, max_lines=2, placeholder=" …"))
    for y, size, text in ((0.995, 9, _short(replay.name, 90)), (0.971, 8, brief)):
        figure.text(0.01, y, text, fontsize=size, va="top", parse_math=False)  # a name may hold a dollar sign
    figure.legend(handles=handles, loc="lower center", ncols=3, fontsize=8, frameon=False, columnspacing=1.5)
    return figure


def _step_axis(ax: Axes, replay: Replay) -> None:
    ax.set_xlabel("training step", fontsize=8)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    first, last = replay.first_step or 0, replay.last_step or 0
    margin = max((last - first) * 0.015, 0.5)
    ax.set_xlim(first - margin, last + margin)


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _in_brief(replay: Replay) -> str:
    """Summary of the run in one line."""
    if replay.own is not None:
        return replay.own.sentence
    fault = {NO_FAULT: "control run", "-": "" if replay.is_of_others else "fault not stated"}.get(
        replay.fault, replay.fault
    )
    if replay.severity != "-":
        fault += f" {replay.severity}"
    outcome = OUTCOMES.get(replay.outcome, replay.outcome)
    parts = [*filter(None, [fault]), outcome + (f" ({_short(replay.reason, 30)})" if replay.reason else "")]
    if replay.lead_paper is not None:
        usable = {True: "usable", False: "not usable", None: "onset unknown"}[replay.usable]
        parts.append(f"lead as the paper counts: {replay.lead_paper:,} steps ({usable})")
    return ", ".join(parts)


def _losses(ax: Axes, curves: PlotCurves) -> list[Line2D]:
    handles = []
    everything = []
    for name, label, look in LOSS_LOOKS:
        curve = curves.series.get(name, Series())
        if len(curve.values):
            handles += _curve(ax, curve, label=label, **look)
            everything.append(np.clip(curve.values, -LARGEST_DRAWN, LARGEST_DRAWN))
    broken = curves.non_finite_steps
    if everything:
        _scale_losses(ax, np.concatenate(everything))
    else:
        style.say(ax, "no finite loss" if broken else "no loss in the log")
        ax.set_yticks([])
    if broken:
        handles += ax.plot(broken, [0.95] * len(broken), transform=ax.get_xaxis_transform(), **NOT_FINITE)
    ax.set_ylabel("loss (nats)", fontsize=8)
    ax.yaxis.set_label_coords(LOSS_LABEL_X, 0.5)
    ax.yaxis.get_offset_text().set_fontsize(7)
    return handles


def _scale_losses(ax: Axes, values: NDArray[np.float64]) -> None:
    """A logarithmic axis where the losses ask for one."""
    lowest, highest = values.min(), values.max()
    if lowest <= 0 or highest / lowest <= LOG_AXIS_FROM:
        return
    ax.set_yscale("log")
    if highest / lowest < 1e5:
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda loss, _: f"{loss:g}"))
    ax.yaxis.set_minor_locator(NullLocator())


def _signal(ax: Axes, replay: Replay, curves: PlotCurves, signal: str, color: str) -> None:
    _curve(ax, curves.series.get(f"{signal}_norm", Series()), color=color, linewidth=0.9)
    ax.set_ylim(-0.08, 1.08)
    ax.set_yticks([0, 1])
    _name_panel(ax, f"{SIGNALS[signal]}′")
    rests_on = f"{SIGNALS[signal]}: {replay.signals.get(signal, '')}"
    if signal in replay.missing:
        style.say(ax, rests_on)
    else:
        ax.set_title(rests_on, fontsize=7, loc="right", pad=3.5)


def _r_metric(ax: Axes, replay: Replay, curves: PlotCurves) -> list[Line2D]:
    handles = _curve(ax, curves.series.get("r_metric", Series()), color=BLACK, linewidth=1.0, label="R")
    if len(replay.missing) == len(SIGNALS):
        style.say(ax, replay.r_in_words, height=0.75)  # above the threshold
        handles = []
    shown = {"color": VERMILION, "linewidth": 1.0, "linestyle": (0, (6, 2, 1, 2))}
    handles.append(ax.axhline(replay.threshold, label=f"threshold {replay.threshold:g}", **shown))  # type: ignore[arg-type]
    highest = max(sum(replay.weights), replay.threshold)
    ax.set_ylim(-0.04 * highest, 1.06 * highest)
    weights = ", ".join(f"{weight:g}" for weight in replay.weights)
    title = f"R-Metric ({replay.preset}): weights of λ, σ², ΔL {weights}; its alert episodes: {replay.episodes:,}"
    ax.set_title(title, fontsize=7, loc="right", pad=2)
    _name_panel(ax, "R")
    return handles


def _marks(axes: Any, replay: Replay) -> list[Line2D]:
    handles = {}
    steps = {"failure": replay.failure_step, "fault": replay.onset, ROBUST: replay.robust_alert}
    steps[FIRST] = None if replay.is_of_others else replay.shown_first_alert
    for what, step in steps.items():  # broken lines over the solid one, so that equal steps show both
        if step is None:
            continue
        for ax in axes:
            ax.axvline(step, zorder=1.5, **MARK_LOOKS[what])
        detector = replay.shown_detector if replay.own is None else "own monitor"  # the line on top has its detector
        whose = f"{what}, {detector}" if what == FIRST else what
        handles[what] = Line2D([], [], label=f"{whose}: step {step:,}", **MARK_LOOKS[what])
    return [handles[what] for what in ("fault", "failure", ROBUST, FIRST) if what in handles]


def _curve(ax: Axes, curve: Series, **look: Any) -> list[Line2D]:
    """Markers only where they do not run into each other; a single point needs one to be seen at all."""
    if len(curve.values) == 1:
        look |= {"marker": "o", "markersize": 2.5}
    elif len(curve.values) > MOST_MARKERS:
        look |= {"marker": None}
    return ax.plot(curve.steps, np.clip(curve.values, -LARGEST_DRAWN, LARGEST_DRAWN), **look)


def _name_panel(ax: Axes, name: str) -> None:
    ax.set_ylabel(name, fontsize=9, rotation=0, ha="right", va="center")
    ax.yaxis.set_label_coords(LABEL_X, 0.5)


def _plain(ax: Axes) -> None:
    ax.tick_params(labelsize=8)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
