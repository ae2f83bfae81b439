"""Figure 3: all detectors at all thresholds, under both protocols."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from rmetric.detectors import ROBUST
from rmetric.evaluation.evaluator import REFERENCE, Evaluator
from rmetric.evaluation.protocols import Protocol
from rmetric.evaluation.scores import false_alarms_per_1000, precision, recall, totals
from rmetric.evaluation.thresholds import BUDGET_PER_STEP
from rmetric.reporting import style
from rmetric.reporting.style import Drawing, rendered
from studies import captions

NAME, TITLE = "figure_3_curves", "Figure 3: Precision–recall and ROC"
BY_PROTOCOL: dict[Protocol, tuple[str, str]] = {
    "strict": (NAME, "Figure 3: Precision–recall and free-response ROC, strict protocol"),
    "paper": ("figure_3b_curves_paper", "Figure 3b: Precision–recall and ROC, paper protocol"),
}
"""Names and titles with several studies."""
HEIGHT_IN = 6.9
EARLY_END = "A failed run ends early and has less time to alert in, so that a curve may lie below."
NO_INTERVALS = "Detectors that meet in a point hide each other there. No intervals are drawn; Table 3 has them."
MOST_CURVES = 9
"""Largest number of curves that can be told apart in one panel."""
BUDGET_PER_1000 = 1000.0 * BUDGET_PER_STEP


@dataclass(frozen=True)
class Column:
    """Two panels: precision–recall, and false alarms below."""

    study: str
    ev: Evaluator
    protocol: Protocol


def draw(studies: Mapping[str, Evaluator], footnote: str = "") -> list[Drawing]:
    """Draw one study under both protocols, or several side by side with a figure for each protocol."""
    names = chosen(list(studies.values()))
    columns = columns_of(studies)
    if len(studies) == 1:
        return [_drawing(NAME, TITLE, columns, names, footnote)]
    return [
        _drawing(name, title, [column for column in columns if column.protocol == protocol], names, footnote)
        for protocol, (name, title) in BY_PROTOCOL.items()
    ]


def columns_of(studies: Mapping[str, Evaluator]) -> list[Column]:
    """Every study under both protocols."""
    return [Column(study, ev, protocol) for protocol in BY_PROTOCOL for study, ev in studies.items()]


def _drawing(name: str, title: str, columns: Sequence[Column], names: Sequence[str], footnote: str) -> Drawing:
    return Drawing(name, title, _caption(columns, names), rendered(figure(columns, names, footnote)))


def chosen(studies: Sequence[Evaluator]) -> list[str]:
    """The detectors whose curves are drawn: all if they are few, else the R-Metrics and then the best others.

    Those with the highest average precision under the strict protocol, averaged over the studies, causal ones alone.
    """
    known = [name for name in studies[0].detectors if all(name in ev.detectors for ev in studies)]
    kept = [name for name in (REFERENCE, ROBUST) if name in known]
    if len(known) <= MOST_CURVES:
        return [*kept, *(name for name in known if name not in kept)]
    others = [name for name in known if name not in kept and studies[0].detectors[name].causal]

    def merit(name: str) -> float:
        found = [ev.curve(name, "strict").average_precision().value for ev in studies]
        return -math.fsum(value for value in found if not math.isnan(value))

    return [*kept, *sorted(others, key=lambda name: (merit(name), name))[: MOST_CURVES - len(kept)]]


@style.styled
def figure(columns: Sequence[Column], names: Sequence[str], footnote: str = "") -> Figure:
    """Precision–recall above; below, false alarms (strict) or false positives (paper)."""
    made = style.new_figure(HEIGHT_IN)
    axes = made.subplots(2, len(columns), squeeze=False)
    looks = _looks(names)
    for place, column in enumerate(columns):
        strict = column.protocol == "strict"
        _precision_recall(axes[0, place], column.ev, column.protocol, looks)
        (_free_response if strict else _roc)(axes[1, place], column.ev, looks)
        title = f"{column.study}, {column.protocol} protocol" if column.study else f"{column.protocol} protocol"
        for row, what in enumerate(("", ", free-response ROC" if strict else ", ROC of runs")):
            _finish(axes[row, place], row * len(columns) + place, title + what)
    _legend(made, columns[0].ev, looks)
    style.footnote(made, footnote)
    return made


def _looks(names: Sequence[str]) -> dict[str, style.Look]:
    """Both R-Metrics thicker than the others; drawn from the last to the first, which then lies on top."""
    looks = style.looks(names, REFERENCE)
    return {name: replace(look, width=2.0) if name == ROBUST else look for name, look in looks.items()}


def _finish(ax: Axes, index: int, title: str) -> None:
    style.letter(ax, index, title)
    ax.set_ylim(-0.02, 1.04)
    ax.grid(visible=True)
    style.plain_numbers(ax, "y", bins=5)


def _legend(made: Figure, ev: Evaluator, looks: dict[str, style.Look]) -> None:
    handles = [
        Line2D([], [], color=look.color, linestyle=look.line, marker=look.marker, linewidth=look.width,
               label=f"{ev.detectors[name].title}{'' if ev.detectors[name].causal else ', not causal'}")
        for name, look in looks.items()
    ]  # fmt: skip
    made.legend(handles=handles, loc="outside upper left", ncols=3, handlelength=3.4, columnspacing=1.2)


def _precision_recall(ax: Axes, ev: Evaluator, protocol: Protocol, looks: dict[str, style.Look]) -> None:
    ax.set_xlabel("recall (share of failed runs)")
    ax.set_ylabel("precision (share of alarms)" if protocol == "strict" else "precision (share of alerted runs)")
    ax.set_xlim(-0.02, 1.02)
    style.plain_numbers(ax, "x", bins=5)
    if why := undefined(ev, protocol):
        style.say(ax, f"not defined: {why}")
        return
    for name, look in reversed(looks.items()):
        recalls, precisions = ev.curve(name, protocol).precision_recall()
        if len(precisions):  # else no threshold warns any run
            _stairs(ax, recalls, precisions, look, "pre")
        sums = totals(ev.counts(name, protocol))
        _mark(ax, float(recall(sums)), float(precision(sums)), look)
    if protocol == "paper":
        share = float(ev.timeline.failed[ev.timeline.counted("paper")].mean())
        ax.axhline(share, color=style.GREY, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
        ax.text(1.0, 0.01, "dotted: an alert in every run", ha="right", va="bottom", color=style.GREY)


def _free_response(ax: Axes, ev: Evaluator, looks: dict[str, style.Look]) -> None:
    ax.set_xlabel("false alarms per 1,000 healthy steps; left edge: 0")
    ax.set_ylabel("recall (share of failed runs)")
    healthy = int(ev.timeline.healthy_steps[ev.timeline.counted("strict")].sum())
    half_an_alarm = 500.0 / healthy if healthy else math.inf
    edge = min(half_an_alarm, BUDGET_PER_1000 / 10.0)
    ax.set_xscale("log")
    style.log_axis(ax, "x")
    ax.set_xlim(edge, 1000.0 / 50.0)
    ax.axvline(BUDGET_PER_1000, color=style.GREY, linewidth=1.0, linestyle=(0, (2, 2)), zorder=1)
    ax.text(BUDGET_PER_1000 * 0.93, 0.9, "budget", ha="right", va="top", color=style.GREY, zorder=1)  # hides no curve
    if why := undefined(ev, "strict"):
        style.say(ax, f"not defined: {why}")
        return
    for name, look in reversed(looks.items()):
        rates, recalls = ev.curve(name, "strict").frontier()
        rates = np.append(np.maximum(rates, edge), 1e3)
        _stairs(ax, rates, np.append(recalls, recalls[-1:]), look, "post")
        sums = totals(ev.counts(name, "strict"))
        _mark(ax, max(float(false_alarms_per_1000(sums)), edge), float(recall(sums)), look)


def _roc(ax: Axes, ev: Evaluator, looks: dict[str, style.Look]) -> None:
    ax.set_xlabel("false-positive rate (share of other runs)")
    ax.set_ylabel("recall (share of failed runs)")
    ax.set_xlim(-0.02, 1.02)
    style.plain_numbers(ax, "x", bins=5)
    if why := undefined(ev, "paper"):
        style.say(ax, f"not defined: {why}")
        return
    ax.plot([0, 1], [0, 1], color=style.GREY, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    for name, look in reversed(looks.items()):
        curve = ev.curve(name, "paper")
        rates, recalls = curve.false_alarm_rate[::-1], curve.recall[::-1]
        _stairs(ax, np.append(0.0, rates), np.append(0.0, recalls), look, None)
        sums = totals(ev.counts(name, "paper"))
        _mark(ax, float(sums.fp) / curve.healthy, float(recall(sums)), look)


def undefined(ev: Evaluator, protocol: Protocol) -> str:
    """Why there are no curves; empty if there are."""
    counted = ev.timeline.counted(protocol)
    if not (counted & ev.timeline.failed).any():
        return "no run failed"
    if protocol == "strict" and not ev.timeline.healthy_steps[counted].sum():
        return "no healthy step"
    if protocol == "paper" and ev.timeline.failed[counted].all():
        return "every run failed"
    return ""


def _stairs(ax: Axes, x: NDArray[np.float64], y: NDArray[np.float64], look: style.Look, where: str | None) -> None:
    drawstyle = f"steps-{where}" if where else "default"
    ax.plot(x, y, color=look.color, linestyle=look.line, linewidth=look.width, drawstyle=drawstyle)  # type: ignore[arg-type]


def _mark(ax: Axes, x: float, y: float, look: style.Look) -> None:
    """Mark the published threshold."""
    if not (math.isnan(x) or math.isnan(y)):
        ax.plot(x, y, marker=look.marker, color=look.color, markersize=6, markeredgecolor="white", markeredgewidth=0.6,
                linestyle="none", zorder=5, clip_on=False)  # fmt: skip


def _caption(columns: Sequence[Column], names: Sequence[str]) -> str:
    studies = {column.study: column.ev for column in columns}
    protocols = {column.protocol: None for column in columns}
    below = {
        "strict": "free-response ROC, best recall at that rate of false alarms or below; dotted: the budget of "
        f"{BUDGET_PER_1000:g} false alarms per 1,000 healthy steps.",
        "paper": "ROC over runs, the other runs being those that did not fail; dotted: an alert in every run, and "
        f"chance. {EARLY_END}",
    }
    tails = " (but the tails of the robust R-Metric, to healthy records of half of the real runs)"
    none_fitted = f"nothing fitted{tails if ROBUST in names else ''}"
    parts = [
        *([style.abreast(studies)] if len(studies) > 1 else []),
        f"{_which(columns[0].ev, names)} at every threshold, {none_fitted}; markers: their published thresholds. "
        "Above: precision and recall, best precision at that recall or above.",
        "Below: " + " ".join(f"{protocol} protocol, {below[protocol]}" for protocol in protocols),
        *({"strict": captions.STRICT, "paper": captions.PAPER}[protocol] for protocol in protocols),
        captions.by_study({study: _facts(ev, [*protocols]) for study, ev in studies.items()}),
        NO_INTERVALS,
    ]
    return " ".join(parts)


def _facts(ev: Evaluator, protocols: Sequence[Protocol]) -> str:
    steps = int(ev.timeline.healthy_steps[ev.timeline.counted("strict")].sum())
    healthy = [f"{steps:,} distinct healthy steps."] if "strict" in protocols else []
    return " ".join([*healthy, *_undefined(ev, protocols), captions.runs(ev), *captions.unmeasured(ev)])


def _which(ev: Evaluator, names: Sequence[str]) -> str:
    if len(names) == len(ev.detectors):
        return "All detectors"
    return (
        f"{len(names)} of {len(ev.detectors)} detectors (the R-Metrics and the causal ones with the highest average "
        "precision under the strict protocol on these very runs; Table 3b has all)"
    )


def _undefined(ev: Evaluator, protocols: Sequence[Protocol]) -> list[str]:
    known = {protocol: undefined(ev, protocol) for protocol in protocols}
    return [f"Not defined under {protocol}: {reason}." for protocol, reason in known.items() if reason]
