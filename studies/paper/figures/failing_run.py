"""Figure 2: one failing run over time, beside its fault-free twin (:mod:`studies.paper.figures.typical_run`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator
from numpy.typing import NDArray

from rmetric.episodes import REARM_STEPS
from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.truth import Truth
from rmetric.records import NO_FAULT
from rmetric.replay.plot import LARGEST_DRAWN
from rmetric.reporting import style
from rmetric.reporting.style import MARKS, RUN_LOOK, Drawing, rendered
from studies import captions
from studies.paper.figures.typical_run import Watched, choose, has, twin_of

NAME, TITLE = "figure_2_failing_run", "Figure 2: A failing run and its twin"
HEIGHT_IN = 8.2
ROWS = ("losses", "lambda", "sigma_sq", "delta_l", "normalised", "r")
HEIGHTS = (1.5, 0.8, 0.8, 0.8, 0.9, 1.3)
CLOSE_UP = 0.35
"""Healthy steps shown in the close-up before the onset, over the time from onset to failure; as many after it."""
MARK_TITLES = {
    "onset": "onset",
    "failure": "failure",
    "first alert": "first alert (paper)",
    "first warning": "warning (strict)",
}
TWIN_LOOK: dict[str, Any] = {"color": style.ORANGE, "linewidth": 2.6, "alpha": 0.7, "zorder": 2.5}
"""Wider and below, so that both are seen where they agree."""
SIGNAL_LOOKS: dict[str, dict[str, Any]] = {
    "delta_l": {"linewidth": 3.0, "alpha": 0.6, "linestyle": "-", "zorder": 2.4},
    "sigma_sq": {"linewidth": 1.0, "zorder": 2.6},
    "lambda": {"linewidth": 1.6, "zorder": 2.8},
}
"""Normalised signals lie on each other at 0 and at 1: each thinner than the one below it."""


@dataclass(frozen=True)
class Chosen:
    """The run of one study, with what a caption says of it."""

    watched: Watched
    twin: Watched | None
    truth: Truth
    why: str
    """Rule by which run and twin were found."""

    @classmethod
    def of(cls, ev: Evaluator, name: str = "") -> Chosen | None:
        """The run of that name, or the typical one; ``None`` if no run fits. Errors as of :func:`choose`."""
        chosen = choose(ev, name)
        if chosen is None:
            return None
        run, truth, why = chosen
        twin, origin = twin_of(run, ev.study.runs)
        return cls(Watched.of(run), None if twin is None else Watched.of(twin), truth, f"{why} {origin}")


@dataclass(frozen=True)
class Column:
    """One column of panels: a run and its twin over a range of steps."""

    title: str
    chosen: Chosen
    limits: tuple[float, float]
    """First and last step."""


def draw(studies: Mapping[str, Evaluator], name: str = "", footnote: str = "") -> Drawing:
    """Draw the whole run and a close-up of one study; of several studies the close-ups side by side.

    ``name`` chooses the run of the study that has it.
    """
    every = {study: Chosen.of(ev, name if len(studies) == 1 or has(ev, name) else "") for study, ev in studies.items()}
    found = {study: item for study, item in every.items() if item is not None}
    if not found:
        reason = "Not drawn: no run of these logs diverged or lost its numbers after a known onset."
        return Drawing(NAME, TITLE, reason, rendered(style.notice(reason, footnote)))
    columns = close_ups(found) if len(studies) > 1 else whole_and_close_up(next(iter(found.values())))
    missing = [
        f"{captions.heading(study)}: no run diverged after a known onset." for study in every if study not in found
    ]
    return Drawing(
        NAME, TITLE, " ".join([_caption(found, len(studies)), *missing]), rendered(figure(columns, footnote))
    )


def whole_and_close_up(chosen: Chosen) -> list[Column]:
    """The run from its first step to its last, and around its failure, if it failed after a known onset."""
    columns = [Column("the whole run; loss: thin training, thick validation", chosen, _whole(chosen))]
    around = _close_up(chosen.truth)
    return [*columns, Column("around the failure", chosen, around)] if around else columns


def close_ups(found: Mapping[str, Chosen]) -> list[Column]:
    """Every study's run around its failure."""
    columns = []
    for study, chosen in found.items():
        run = chosen.watched.run
        title = style.broken(f"{study}: {run.model_type}, {run.fault.replace('_', ' ').lower()}", 44)
        columns.append(Column(title, chosen, _close_up(chosen.truth) or _whole(chosen)))
    return columns


@style.styled
def figure(columns: Sequence[Column], footnote: str = "") -> Figure:
    """Losses, signals and R, one column of panels for each of the given ones."""
    one_run = len({column.chosen.watched.run.name for column in columns}) == 1
    made = style.new_figure(HEIGHT_IN if one_run else HEIGHT_IN + 0.35)
    axes = made.subplots(
        len(ROWS), len(columns), sharex="col", squeeze=False, height_ratios=HEIGHTS,
        width_ratios=(1.5, 1.0) if one_run and len(columns) == 2 else None,
    )  # fmt: skip
    for place, column in enumerate(columns):
        _column(list(axes[:, place]), column)
        for row, ax in enumerate(axes[:, place]):
            style.letter(ax, len(columns) * row + place, "" if row else column.title)
            if place:
                ax.set_ylabel("")
                ax.tick_params(axis="y", labelleft=True)
        if place or not one_run:
            axes[-1, place].xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    made.align_ylabels(axes)
    shown = next((column.chosen for column in columns if column.chosen.twin is not None), columns[0].chosen)
    made.legend(
        handles=[*_handles(shown), *_mark_handles(columns)], loc="outside upper left", ncols=4, columnspacing=1.2
    )
    style.footnote(made, footnote)
    return made


def _column(axes: Sequence[Axes], column: Column) -> None:
    """All panels of a run over the same steps."""
    for row, ax in zip(ROWS, axes, strict=True):
        _panel(ax, row, column.chosen, column.limits)
        for mark, step in _marks(column.chosen).items():
            if step is not None:
                ax.axvline(step, **MARKS[mark])
    style.steps_axis(axes[-1])
    axes[-1].set_xlim(*column.limits)


def _close_up(truth: Truth) -> tuple[float, float] | None:
    if truth.onset is None or truth.failure_step is None:
        return None
    margin = max(CLOSE_UP * (truth.failure_step - truth.onset), 20.0)
    return max(truth.onset - margin, 0.0), truth.failure_step + margin


def _whole(chosen: Chosen) -> tuple[float, float]:
    runs = [chosen.watched] if chosen.twin is None else [chosen.watched, chosen.twin]
    return 0.0, float(max(chosen.truth.horizon, 1, *(item.step[-1] for item in runs)))


def _marks(chosen: Chosen) -> dict[str, int | None]:
    return {
        "onset": chosen.truth.onset,
        "failure": chosen.truth.failure_step,
        "first alert": chosen.watched.first_alert,
        "first warning": chosen.watched.first_warning,
    }


def _panel(ax: Axes, row: str, chosen: Chosen, limits: tuple[float, float]) -> None:
    watched, twin = chosen.watched, chosen.twin
    pairs = [(watched, RUN_LOOK), *([] if twin is None else [(twin, TWIN_LOOK)])]
    ax.set_xlim(*limits)
    if row == "losses":
        ax.set_ylabel("loss (nats)")
        for item, look in pairs:
            pale = {**look, "alpha": 0.45, "linewidth": 0.5 * look["linewidth"]}
            _line(ax, item, item.run.observations["training_loss"], limits, **pale)
            _line(ax, item, item.run.observations["validation_loss"], limits, drawstyle="steps-post", **look)
        _loss_scale(ax)
    elif row == "normalised":
        ax.set_ylabel("normalised\n(0 to 1)")
        for look, values in zip(_signal_looks(), watched.value[1:], strict=True):
            _line(ax, watched, np.asarray(values), limits, **look)
        ax.set_ylim(-0.05, 1.08)
        ax.set_yticks([0.0, 0.5, 1.0])
    elif row == "r":
        ax.set_ylabel("R (0 to 1.25)")
        for item, look in pairs:
            _line(ax, item, item.r, limits, **look)
        ax.axhline(watched.threshold, color=style.GREY, linewidth=1.0, linestyle=(0, (6, 2)))
        ax.set_ylim(-0.05, 1.33)
        style.plain_numbers(ax, "y", bins=4)
    else:
        sign = next(sign for name, sign, *_ in style.SIGNALS if name == row)
        ax.set_ylabel(f"{sign} ({ {'lambda': 'events/h', 'sigma_sq': 'norm²', 'delta_l': 'nats'}[row] })")
        if not watched.run.observations.has(row):
            style.say(ax, f"{sign} is not in this log")
            ax.set_yticks([])
            return
        drawn = [_line(ax, item, item.run.observations[row], limits, **look) for item, look in pairs]
        shown = np.concatenate([values[np.isfinite(values)] for values in drawn])
        if row == "sigma_sq" and len(shown) and 0 < 30 * shown.min() < shown.max():
            style.log_axis(ax, "y")
            return
        style.plain_numbers(ax, "y", bins=3)
        if row == "lambda":  # a rate: none below 0, also where all are 0
            highest = max(shown, default=0.0) or 1.0
            ax.set_ylim(-0.04 * highest, 1.08 * highest)


def _line(
    ax: Axes, item: Watched, values: NDArray[np.float64], limits: tuple[float, float], **look: Any
) -> NDArray[np.float64]:
    """Draw what lies within the limits, and one record on either side; returns the values drawn."""
    low = max(int(np.searchsorted(item.step, limits[0])) - 1, 0)
    high = int(np.searchsorted(item.step, limits[1], side="right")) + 1
    shown = np.where(np.isinf(values[low:high]), np.nan, np.clip(values[low:high], -LARGEST_DRAWN, LARGEST_DRAWN))
    ax.plot(item.step[low:high], shown, **look)
    return shown


def _loss_scale(ax: Axes) -> None:
    values = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in ax.lines])
    values = values[np.isfinite(values)]
    if not len(values) or not 0 < 8 * values.min() < values.max():
        style.plain_numbers(ax, "y", bins=4)
        return
    style.log_axis(ax, "y")
    if values.max() < 100 * values.min():  # powers of ten alone would leave one number or none
        ax.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10]))
        ax.yaxis.set_minor_locator(NullLocator())


def _handles(chosen: Chosen) -> list[Line2D]:
    """Run, twin, threshold and signals."""
    return [
        Line2D([], [], label="run", **RUN_LOOK),
        *([Line2D([], [], label="its twin", **TWIN_LOOK)] if chosen.twin else []),
        Line2D([], [], color=style.GREY, linewidth=1.0, linestyle=(0, (6, 2)), label="threshold of R"),
        *(Line2D([], [], **{**look, "label": f"{look['label']} of the run"}) for look in _signal_looks()),
    ]


def _signal_looks() -> list[dict[str, Any]]:
    """Looks of the normalised signals, in the order of their weights."""
    return [
        {"color": color, "linestyle": line, "label": f"{sign}′", **SIGNAL_LOOKS[name]}
        for name, sign, color, line in style.SIGNALS
    ]


def _mark_handles(columns: Sequence[Column]) -> list[Line2D]:
    """Legend of the vertical lines that any panel shows; of one run, with the step."""
    shown: dict[str, set[int]] = {mark: set() for mark in MARK_TITLES}
    for column in columns:
        low, high = column.limits
        for mark, step in _marks(column.chosen).items():
            if step is not None and low <= step <= high:
                shown[mark].add(step)
    one_run = len({column.chosen.watched.run.name for column in columns}) == 1
    return [
        Line2D([], [], label=MARK_TITLES[mark] + (f": {min(steps):,}" if one_run else ""), **MARKS[mark])
        for mark, steps in shown.items()
        if steps
    ]


def _caption(found: Mapping[str, Chosen], studies: int) -> str:
    shown = "From shortly before the onset to shortly after the failure."
    if studies == 1:
        shown = "Left: the whole run; right: from shortly before the onset to shortly after the failure."
    parts = [
        *([style.abreast(found)] if studies > 1 else []),
        shown,
        "Losses: thin and pale training, thick validation (latest known). λ, σ² and ΔL as logged; normalised over "
        "their own history; R with the published weights and threshold, recomputed from the log. A value that is not "
        "finite is not drawn.",
        captions.by_study({study: account(item) for study, item in found.items()}),
    ]
    return " ".join(parts)


def account(chosen: Chosen) -> str:
    """Say which run it is, how it was chosen, when it failed, and when R alerted."""
    watched, twin, truth = chosen.watched, chosen.twin, chosen.truth
    run = watched.run
    kind = {NO_FAULT: "no fault"}.get(run.fault, f"{run.fault}, severity {run.severity}")
    parts = [f"Run `{run.name}` ({run.model_type}, {kind}), {len(run.observations):,} records. {chosen.why}"]
    if truth.failure_step is not None:
        parts.append(f"The run failed at step {truth.failure_step:,} ({truth.reason or 'no reason logged'}).")
    else:
        parts.append(f"The run did not fail ({truth.kind}).")
    warning = watched.first_warning
    alerts = watched.first_alert
    parts.append(
        "R never exceeded the threshold." if alerts is None else f"First alert at step {alerts:,}"
        + (f", {truth.onset - alerts:,} steps before the onset: a true positive in the paper's counting, a false alarm "
           "in the strict one." if truth.onset is not None and alerts < truth.onset and truth.failure_step else ".")
    )  # fmt: skip
    if truth.failure_step is not None:
        parts.append(
            _missed(chosen)
            if warning is None
            else f"First warning (strict) at step {warning:,}, a lead of {truth.failure_step - warning:,} steps."
        )
    if twin is not None:
        above = float((twin.r > twin.threshold).mean())
        first = twin.first_alert
        parts.append(
            f"R of the healthy twin exceeds the threshold in {100 * above:.0f} % of its records"
            + ("." if first is None else f", first at step {first:,}.")
        )
    return " ".join(parts)


def _missed(chosen: Chosen) -> str:
    """Say why no alert of a failed run warns, of those between onset and failure too."""
    watched, onset = chosen.watched, chosen.truth.onset
    said = "No episode began between onset and failure, so that the strict protocol counts it as missed"
    failure = chosen.truth.failure_step
    if onset is None or failure is None:
        return f"{said}."
    within = (watched.r > watched.threshold) & (watched.step >= onset) & (watched.step < failure)
    alerts = ", ".join(f"{step:,}" for step in watched.step[within].tolist())
    if not alerts:
        return f"{said}."
    return (
        f"{said}: the alerts there (step {alerts}) belong to an episode that began before the onset, for fewer than "
        f"{REARM_STEPS} quiet steps lie between."
    )
