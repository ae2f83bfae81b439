"""Figure 4: how long before the failure the warning came, by fault, and how long there was at most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator
from numpy.typing import NDArray

from rmetric.detectors import ROBUST
from rmetric.evaluation.evaluator import REFERENCE, Evaluator
from rmetric.evaluation.protocols import Counts
from rmetric.evaluation.thresholds import BUDGET_PER_STEP
from rmetric.records import NO_FAULT
from rmetric.reporting import style
from rmetric.reporting.style import Drawing, rendered
from studies import captions
from studies.captions import short_title
from studies.paper.figures import curves

NAME, TITLE = "figure_4_lead_times", "Figure 4: Lead times by fault"
ALL_FAULTS = "all faults"
QUARTILES_FROM = 5
"""Fewer values than this are shown as points alone."""
GOLDEN = 0.6180339887498949
BAND = 0.27
"""Distance between the series of one row, in rows."""
POSSIBLE = style.Look(style.GREY, "-", "|")


@dataclass(frozen=True)
class Series:
    """One detector, at the threshold it is shown at."""

    name: str
    title: str
    counts: Counts


@dataclass(frozen=True)
class Shown:
    series: Sequence[Series]
    runs: NDArray[np.bool_]
    """Shape (runs,): those that are scored."""
    how: Sequence[str]
    """Thresholds and runs, in sentences."""


def draw(studies: Mapping[str, Evaluator], footnote: str = "") -> Drawing:
    """Draw the figure, one panel a study, their faults in the same rows."""
    shown = {study: select(ev) for study, ev in studies.items()}
    return Drawing(NAME, TITLE, _caption(studies, shown), rendered(figure(studies, shown, footnote)))


def select(ev: Evaluator) -> Shown:
    """The R-Metrics and the best other detector, at thresholds fitted to the budget, or published ones."""
    names = [name for name in (REFERENCE, ROBUST) if name in ev.detectors]
    other = best_other(ev)
    fitted = {name: ev.within_budget(name) for name in (*names, *([other] if other else []))}
    failed = ev.timeline.failed & ev.timeline.counted("strict") & ev.halves.score
    if failed.any() and all(item.counts is not None for item in fitted.values()):
        series = [
            Series(name, f"{short_title(ev.detectors[name].title)}, threshold {item.threshold:.3g}", item.counts)
            for name, item in fitted.items()
            if item.counts is not None
        ]
        kept = [ev.detectors[name].title for name, item in fitted.items() if item.of_settings]
        how = [
            f"Thresholds: highest F1 within {1000 * BUDGET_PER_STEP:g} false alarms per 1,000 healthy steps on the fit "
            "half (odd repetition or seed), as in Table 9; shown is the other half. Table 3c fits the highest recall "
            "within that budget instead: other thresholds.",
            *(f"{title} keeps the threshold of its settings." for title in kept),
            *(["The other detector is the causal one with the highest recall on the fit half."] if other else []),
        ]
        return Shown(series, ev.halves.score, how)
    other = ev.best_baseline("strict")
    names += [other] if other else []
    series = [Series(name, ev.detectors[name].title, ev.counts(name, "strict")) for name in names]
    how = [
        "Published thresholds and all runs, because these logs do not have failed runs in both halves, one to fit "
        "thresholds and one to score them.",
        *(["The other detector is the causal one with the highest F1."] if other else []),
    ]
    return Shown(series, np.ones(len(ev.timeline), bool), how)


def best_other(ev: Evaluator) -> str | None:
    """The causal detector that is no R-Metric and warns most runs of the fit half within the budget."""
    warned: dict[str, int] = {}
    for name, detector in ev.detectors.items():
        counts = ev.within_budget(name).counts
        if name not in (REFERENCE, ROBUST) and detector.causal and counts is not None:
            warned[name] = int(counts.tp[ev.halves.fit].sum())
    return max(warned, key=warned.__getitem__, default=None)


@style.styled
def figure(studies: Mapping[str, Evaluator], shown: Mapping[str, Shown], footnote: str = "") -> Figure:
    """One row a fault, the longest available time on top; a row of all faults above."""
    rows = {study: dict(_rows(ev, shown[study])) for study, ev in studies.items()}
    any_failed = any(_failed(ev, shown[study]).any() for study, ev in studies.items())
    faults = list(dict.fromkeys(fault for each in rows.values() for fault in each))
    looks = looks_of(studies.values(), shown.values())
    handles = _handles(shown, looks) if any_failed else []
    columns = 3 if len(handles) <= 3 else 2
    series = max(2, *(len(item.series) for item in shown.values()))
    height = (0.26 + 0.12 * series) * max(len(faults) if any_failed else 0, 2)
    made = style.new_figure(1.15 + 0.2 * max(1, -(-len(handles) // columns)) + height)
    axes = made.subplots(1, len(studies), squeeze=False)[0]
    for index, (ax, (study, ev)) in enumerate(zip(axes, studies.items(), strict=True)):
        none = np.zeros(len(ev.timeline), bool)
        _panel(ax, ev, shown[study], [(fault, rows[study].get(fault, none)) for fault in faults], looks)
        if len(studies) > 1:
            style.letter(ax, index, study)
        if index and ax.get_yticks().size:
            ax.set_yticks(range(len(faults)), [""] * len(faults))
            ax.set_ylabel("")
    if handles:
        made.legend(handles=handles, loc="outside upper left", ncols=columns, columnspacing=1.2)
    style.footnote(made, footnote)
    return made


def looks_of(studies: Iterable[Evaluator], shown: Iterable[Shown]) -> dict[str, style.Look]:
    """A look a detector, the same in every panel, and that of Figure 3 if it is drawn there."""
    drawn = [series.name for item in shown for series in item.series]
    return style.looks(list(dict.fromkeys([*curves.chosen(list(studies)), *drawn])), REFERENCE)


def _handles(shown: Mapping[str, Shown], looks: Mapping[str, style.Look]) -> list[Line2D]:
    """Legend: what was possible, and every series, with its study's name if there are several."""
    titles = {study: f"{study}: " if len(shown) > 1 else "" for study in shown}
    return [
        _handle("possible: steps from onset to failure", POSSIBLE),
        *(_handle(titles[study] + item.title, looks[item.name]) for study in shown for item in shown[study].series),
    ]


def _failed(ev: Evaluator, shown: Shown) -> NDArray[np.bool_]:
    """The failed runs that are shown, shape (runs,)."""
    return ev.timeline.failed & ev.timeline.counted("strict") & shown.runs


def _panel(
    ax: Axes,
    ev: Evaluator,
    shown: Shown,
    rows: Sequence[tuple[str, NDArray[np.bool_]]],
    looks: Mapping[str, style.Look],
) -> None:
    """One row a fault; the reason why not, if no run failed."""
    failed = _failed(ev, shown)
    available = ev.timeline.failure_step - ev.timeline.onset
    band = BAND if len(shown.series) <= 2 else 0.8 / (len(shown.series) + 1)
    ax.set_xlabel("lead: steps from the first warning to the failure")
    if not failed.any():
        ax.set_xticks([])
        ax.set_yticks([])
        ax.set_ylabel("fault")
        style.say(ax, "not defined: no run failed after a known onset")
        return
    for index, (_, chosen) in enumerate(rows):
        middle = 1.0 if len(shown.series) <= 2 else len(shown.series) / 2.0
        _band(ax, available[chosen], index - band * middle, POSSIBLE, band)
        for place, series in enumerate(shown.series):
            warned = chosen & (series.counts.tp > 0)
            y = index + band * (place + 1 - middle)
            _band(ax, series.counts.lead[warned], y, looks[series.name], band)
            ax.text(1.015, y, f"{int(warned.sum()):,} of {int(chosen.sum()):,}", transform=ax.get_yaxis_transform(),
                    va="center", ha="left", color=looks[series.name].color)  # fmt: skip
        if index:
            ax.axhline(index - 0.5, color="#DDDDDD", linewidth=1.2 if index == 1 else 0.5, zorder=0)
    _axes(ax, rows, float(np.nanmax(available[failed])))


def _rows(ev: Evaluator, shown: Shown) -> list[tuple[str, NDArray[np.bool_]]]:
    """Label and runs of each row; a fault of the logs without a failed run is kept."""
    failed = _failed(ev, shown)
    available = ev.timeline.failure_step - ev.timeline.onset
    fault_R = np.array([run.fault for run in ev.study.runs])
    medians = {
        fault: float(np.median(available[failed & (fault_R == fault)])) if (failed & (fault_R == fault)).any() else -1.0
        for fault in dict.fromkeys(fault_R.tolist())
        if fault != NO_FAULT
    }
    order = sorted(medians, key=lambda fault: (-medians[fault], fault))
    return [(ALL_FAULTS, failed), *((fault, failed & (fault_R == fault)) for fault in order)]


def _band(ax: Axes, values: NDArray[np.float64], y: float, look: style.Look, band: float) -> None:
    """Every value as a point; median and quartiles as well if there are enough."""
    ranked = np.sort(values)
    spread = ((np.arange(len(ranked)) * GOLDEN) % 1.0 - 0.5) * 0.55 * band
    ax.plot(ranked, y + spread, marker=look.marker, markersize=2.6, linestyle="none", color=look.color, alpha=0.6,
            markeredgewidth=0.6 if look.marker == "|" else 0.0, zorder=2)  # fmt: skip
    if len(ranked) >= QUARTILES_FROM:
        low, middle, high = np.quantile(ranked, [0.25, 0.5, 0.75])
        ax.plot([low, high], [y, y], color=look.color, linewidth=2.2, solid_capstyle="butt", zorder=3)
        ax.plot(middle, y, color=look.color, zorder=4, **_median(look))


def _axes(ax: Axes, rows: Sequence[tuple[str, NDArray[np.bool_]]], longest: float) -> None:
    style.log_axis(ax, "x", linthresh=1.0, linscale=0.3)
    ticks = [0.0, *(10.0**power for power in range(8) if 10.0**power <= max(longest, 10.0) * 1.5)]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.set_xlim(-0.15, max(longest, 10.0) * 1.3)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    labels = [style.broken(fault.replace("_", " ").replace("+", " + "), 16) for fault, _ in rows]
    ax.set_yticks(range(len(rows)), labels)
    ax.tick_params(axis="y", length=0)
    ax.set_ylabel("fault")
    ax.grid(visible=True, axis="x")
    ax.text(1.015, 1.003, "warned\nof failed", transform=ax.transAxes, va="bottom", ha="left")


def _median(look: style.Look) -> dict[str, Any]:
    """Mark of a median: as a series' points, but large and hollow."""
    marker = "D" if look.marker == "|" else look.marker
    return {"marker": marker, "markersize": 4.8, "markerfacecolor": "white", "markeredgewidth": 1.2}


def _handle(text: str, look: style.Look) -> Line2D:
    return Line2D([], [], color=look.color, linewidth=2.2, label=text, **_median(look))


def _caption(studies: Mapping[str, Evaluator], shown: Mapping[str, Shown]) -> str:
    parts = [
        *([style.abreast(studies)] if len(studies) > 1 else []),
        "Lead times under the strict protocol, by fault, in steps, beside the steps that there were from the onset to "
        "the failure (grey; no warning can come earlier). A point is a run; line: quartiles, hollow mark: median, "
        f"where there are {QUARTILES_FROM} or more. On the right: warned of failed runs; a run that was not warned has "
        "no lead and no point.",
        captions.by_study({study: _warned(ev, shown[study]) for study, ev in studies.items()}),
        *captions.each_by_study({study: item.how for study, item in shown.items()}),
        captions.STRICT,
        captions.by_study({study: captions.runs(ev, shown[study].runs) for study, ev in studies.items()}),
    ]
    return " ".join(parts)


def _warned(ev: Evaluator, shown: Shown) -> str:
    failed = _failed(ev, shown)
    warned = [
        f"{series.title}: {int((failed & (series.counts.tp > 0)).sum())} of {int(failed.sum())} failed runs warned"
        for series in shown.series
    ]
    return f"{'; '.join(warned)}."
