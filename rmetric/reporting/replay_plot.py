"""One figure a replayed log: losses, the three normalised signals, R with its threshold, and what happened when."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from rmetric.records import write_atomically
from rmetric.replay import Replay, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito 2008: told apart with every common colour vision, and by lightness in print.
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
WIDTH_IN, HEIGHT_IN, DPI = 7.2, 6.4, 150
LARGEST = 1e30
"""Values are cut here in the drawing, far beyond any axis that can be read."""
LOG_AXIS_FROM = 20.0
"""Ratio of the largest loss to the smallest from which its axis is logarithmic."""
SIGNALS = (("lambda", "λ′", GREEN), ("sigma_sq", "σ²′", ORANGE), ("delta_l", "ΔL′", PURPLE))
MARKS = {
    "fault": {"color": BLACK, "linestyle": (0, (4, 2)), "linewidth": 1.1},
    "failure": {"color": VERMILION, "linestyle": "-", "linewidth": 1.6},
    "first alert": {"color": BLUE, "linestyle": (0, (1, 1.2)), "linewidth": 1.6},
}
OUTCOMES = {
    "clean": "did not fail",
    "recovered": "did not fail",
    "censored": "undecided at the end",
    "incomplete": "incomplete log",
    "not stated": "outcome not stated",
}
_NAMES = {"lambda": "λ", "sigma_sq": "σ²", "delta_l": "ΔL"}


def draw_replay(replay: Replay, path: Path) -> None:
    """Write the figure as PNG (1080 × 960 points, readable in print and without colour).

    Parameters
    ----------
    replay
        With its trace (``replay_log(..., trace=True)``) and at least one record.
    path
        Where to; written atomically.
    """
    figure = replay_figure(replay)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=DPI)
    write_atomically(path, image.getvalue())


def replay_figure(replay: Replay) -> Figure:
    """The figure of :func:`draw_replay`."""
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout=ConstrainedLayoutEngine(h_pad=0.03, hspace=0.02))
    FigureCanvasAgg(figure)
    axes = figure.subplots(5, 1, sharex=True, height_ratios=(2.4, 0.8, 0.8, 0.8, 1.9))
    handles = _losses(axes[0], replay)
    for ax, (signal, label, color) in zip(axes[1:4], SIGNALS, strict=True):
        _signal(ax, replay, signal, label, color)
    handles += _r_metric(axes[4], replay)
    handles += _marks(axes, replay)
    axes[4].set_xlabel("training step", fontsize=8)
    axes[4].xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes[4].xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    first, last = replay.first_step or 0, replay.last_step or 0
    margin = max((last - first) * 0.015, 0.5)
    axes[4].set_xlim(first - margin, last + margin)
    figure.align_ylabels(axes)
    title = figure.suptitle(_title(replay), fontsize=9, x=0.01, ha="left")
    title.set_parse_math(False)  # a name may hold a dollar sign
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return figure


def _title(replay: Replay) -> str:
    name = replay.name if len(replay.name) <= 90 else replay.name[:87] + "…"
    fault = {"NONE": "control run", "-": "fault not stated"}.get(replay.fault, replay.fault)
    outcome = OUTCOMES.get(replay.outcome, replay.outcome)
    parts = [fault, outcome + (f" ({replay.reason[:30]})" if replay.reason else "")]
    if replay.lead_paper is not None:
        usable = {True: "usable", False: "not usable", None: "onset unknown"}[replay.usable]
        parts.append(f"lead as the paper counts: {replay.lead_paper:,} steps ({usable})")
    return f"{name}\n{', '.join(parts)}"


def _losses(ax: Axes, replay: Replay) -> list[Line2D]:
    handles = []
    everything = []
    for name, label, style in (
        ("training_loss", "training loss", {"color": SKY, "linewidth": 1.0}),
        ("validation_loss", "validation loss", {"color": BLUE, "linewidth": 1.2, "marker": "o", "markersize": 2.5}),
    ):
        curve = replay.trace.series.get(name, Series())
        if len(curve.values):
            if len(curve.values) > 120:
                style = {**style, "marker": None}
            values = np.clip(curve.values, -LARGEST, LARGEST)
            handles += ax.plot(curve.steps, values, label=label, **style)  # type: ignore[arg-type]
            everything.append(values)
    if everything:
        values = np.concatenate(everything)
        if values.min() > 0 and values.max() / values.min() > LOG_AXIS_FROM:
            ax.set_yscale("log")
            if values.max() / values.min() < 1e5:
                ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
                ax.yaxis.set_major_formatter(FuncFormatter(lambda loss, _: f"{loss:g}"))
            ax.yaxis.set_minor_locator(NullLocator())
    else:
        ax.text(0.5, 0.5, "no loss in the log", transform=ax.transAxes, ha="center", va="center", fontsize=8)
        ax.set_yticks([])
    broken = replay.trace.non_finite_steps
    if broken:
        style = {"color": VERMILION, "marker": "x", "markersize": 5, "linestyle": "none"}
        transform = ax.get_xaxis_transform()
        handles += ax.plot(broken, [0.95] * len(broken), label="loss not finite", transform=transform, **style)  # type: ignore[arg-type]
    ax.set_ylabel("loss (nats)", fontsize=8)
    _plain(ax)
    return handles


def _signal(ax: Axes, replay: Replay, signal: str, label: str, color: str) -> None:
    curve = replay.trace.series.get(f"{signal}_norm", Series())
    ax.plot(curve.steps, curve.values, color=color, linewidth=0.9)
    ax.set_ylim(-0.08, 1.08)
    ax.set_yticks([0, 1])
    ax.set_ylabel(label, fontsize=9, rotation=0, ha="right", va="center")
    rests_on = replay.signals.get(signal, "")
    note = f"{_NAMES[signal]}: {rests_on}"
    ax.set_title(note, fontsize=7, loc="right", pad=3.5)
    _plain(ax)


def _r_metric(ax: Axes, replay: Replay) -> list[Line2D]:
    curve = replay.trace.series.get("r_metric", Series())
    handles = ax.plot(curve.steps, curve.values, color=BLACK, linewidth=1.0, label="R")
    shown = {"color": VERMILION, "linewidth": 1.0, "linestyle": (0, (6, 2, 1, 2))}
    handles.append(ax.axhline(replay.threshold, label=f"threshold {replay.threshold:g}", **shown))  # type: ignore[arg-type]
    highest = max(sum(replay.weights), replay.threshold)
    ax.set_ylim(-0.04 * highest, 1.06 * highest)
    weights = ", ".join(f"{weight:g}" for weight in replay.weights)
    ax.set_title(
        f"R: weights of λ, σ², ΔL {weights}; alert episodes: {replay.episodes:,}", fontsize=7, loc="right", pad=2
    )
    ax.set_ylabel("R", fontsize=9, rotation=0, ha="right", va="center")
    _plain(ax)
    return handles


def _marks(axes: Any, replay: Replay) -> list[Line2D]:
    handles = []
    steps = {"failure": replay.failure_step, "fault": replay.onset, "first alert": replay.first_alert}
    for what, step in steps.items():  # broken lines over the solid one, so that equal steps show both
        if step is None:
            continue
        style: dict[str, Any] = MARKS[what]
        for ax in axes:
            ax.axvline(step, zorder=1.5, **style)
        handles.append(Line2D([], [], label=f"{what}, step {step:,}", **style))
    return handles


def _plain(ax: Axes) -> None:
    ax.tick_params(labelsize=8)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
