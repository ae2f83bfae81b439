"""Figure 2: one failing run over time, beside its fault-free twin.

Which run: the typical one. Of the failed runs whose loss shows the failure (it diverged or became non-finite; a lost
worker shows nowhere in these panels), whose onset is known and lies before the failure, and whose log has the most
signals, it is the one whose time from onset to failure is nearest to the median of theirs, the first by name at a tie.
It is chosen by how it failed, never by what a detector made of it. ``run`` names another one.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator
from numpy.typing import NDArray

from rmetric.detectors import RMetricDetector, first_alert
from rmetric.errors import UserError
from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.ground_truth import DIVERGED, NAN_LOSS, Truth
from rmetric.evaluation.protocols import WARNING, Timeline, group_key
from rmetric.log_reader import assemble, chunks
from rmetric.metric import RValue
from rmetric.records import Run
from rmetric.reporting import style
from rmetric.reporting.style import Drawing, rendered
from rmetric.simulation import RunSpec
from studies.captions import by_study, heading
from studies.paper.run import run_batch

NAME, TITLE = "figure_2_failing_run", "Figure 2: A failing run and its twin"
HEIGHT_IN = 8.2
ROWS = ("losses", "lambda", "sigma_sq", "delta_l", "normalised", "r")
CLOSE_UP_SHOWN = "; right: from shortly before the onset to shortly after the failure."
HEIGHTS = (1.5, 0.8, 0.8, 0.8, 0.9, 1.3)
LARGEST = 1e30
"""Values are cut here in the drawing."""
CLOSE_UP = 0.35
"""Healthy steps shown in the close-up before the onset, over the time from onset to failure; as many after it."""
MARKS: dict[str, dict[str, Any]] = {
    "onset": {"color": style.BLACK, "linestyle": (0, (4, 2)), "linewidth": 1.0},
    "failure": {"color": style.VERMILION, "linestyle": "-", "linewidth": 1.4},
    "first alert": {"color": style.BLUE, "linestyle": (0, (1, 1.2)), "linewidth": 1.6},
    "first warning": {"color": style.GREEN, "linestyle": (0, (6, 1.5, 1, 1.5)), "linewidth": 1.4},
}
MARK_TITLES = {
    "onset": "onset",
    "failure": "failure",
    "first alert": "first alert (paper)",
    "first warning": "warning (strict)",
}
RUN_LOOK: dict[str, Any] = {"color": style.BLUE, "linewidth": 1.0, "zorder": 3}
TWIN_LOOK: dict[str, Any] = {"color": style.ORANGE, "linewidth": 2.6, "alpha": 0.7, "zorder": 2.5}
"""Wider and below, so that both are seen where they agree."""


@dataclass(frozen=True)
class Watched:
    """A run and what the R-Metric made of it, recomputed from the log."""

    run: Run
    value: RValue
    threshold: float

    @classmethod
    def of(cls, run: Run) -> Watched:
        """With the paper's setting."""
        detector = RMetricDetector()
        return cls(run, detector.fresh().extend_explained(run.observations), detector.threshold)

    @property
    def step(self) -> NDArray[np.int64]:
        """Of each record."""
        return self.run.observations.step

    @property
    def r(self) -> NDArray[np.float64]:
        """R of each record."""
        return np.asarray(self.value.r)

    @cached_property
    def first_alert(self) -> int | None:
        """As the paper counts it: anywhere in the log up to the failure."""
        return first_alert(self.step, self.r, self.threshold)

    @cached_property
    def first_warning(self) -> int | None:
        """Begin of the first episode between onset and failure (strict)."""
        starts = Timeline.of([self.run]).starts(self.r)
        begun = starts.at(self.threshold) & (starts.zone == WARNING)
        return int(starts.step[begun][0]) if begun.any() else None


# ---------------------------------------------------------------------------------------------------------------------
# Which run, and its twin
# ---------------------------------------------------------------------------------------------------------------------


def choose(ev: Evaluator, name: str = "") -> tuple[Run, Truth, str] | None:
    """The run to show, its truth, and how it was chosen; ``None`` if no run fits and none was asked for.

    Raises
    ------
    UserError
        If no run has that name, or its log holds no record.
    """
    pairs = list(zip(ev.study.runs, ev.study.truths, strict=True))
    if name:
        wanted = name.removesuffix(".jsonl")
        for run, truth in pairs:
            if run.name == wanted:
                if not len(run.observations):
                    raise UserError(f"the log {name} holds no record; choose another --run")
                return run, truth, "It was chosen by name."
        near = difflib.get_close_matches(wanted, [run.name for run, _ in pairs], n=1, cutoff=0.3)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"no log is named {name}{hint}")
    fitting = [
        (run, truth, truth.incubation)
        for run, truth in pairs
        if truth.kind == "failed"
        and truth.reason in (NAN_LOSS, DIVERGED)
        and len(run.observations)
        and truth.incubation
    ]
    if not fitting:
        return None
    most = max(_signals(run) for run, _, _ in fitting)
    fitting = [item for item in fitting if _signals(item[0]) == most]
    median = float(np.median([incubation for _, _, incubation in fitting]))
    run, truth, _ = min(fitting, key=lambda item: (abs(item[2] - median), item[0].name))
    why = (
        f"Of the {len(fitting)} runs that failed by their loss, it is the one whose time from onset to failure is "
        f"nearest to their median ({median:,.0f} steps)."
    )
    return run, truth, why


def _signals(run: Run) -> int:
    return sum(run.observations.has(name) for name, *_ in style.SIGNALS)


def twin_of(run: Run, others: list[Run]) -> tuple[Run | None, str]:
    """The fault-free run of the same backend, model and seed, and where it comes from.

    It is looked for among the logs; that of a simulated run is simulated anew if it is not there, and taken only if it
    agrees with the log in every record before the onset.
    """
    if run.fault == "NONE":
        return None, "It is a control run; it has no twin."
    key = group_key(run)
    for other in others:
        if key is not None and other.fault == "NONE" and group_key(other) == key and other is not run:
            return other, "The twin is the control run of the same backend, model and seed."
    if run.config.get("backend") != "simulator":
        return None, "Its twin is not among the logs."
    twin = _simulated_twin(run)
    if twin is None:
        return None, "Its twin could not be simulated anew: the log comes from another version of the simulator."
    return (
        twin,
        "The twin was simulated anew from the log's seed; it agrees with the log in every record before the onset.",
    )


def _simulated_twin(run: Run) -> Run | None:
    try:
        spec = RunSpec(
            architecture=run.config["architecture"],
            seed=run.config["seed"],
            steps=run.config["total_training_steps"],
            log_every=run.config["log_every_n_steps"],
            eval_every=run.config["eval_every_n_steps"],
        )
        content = run_batch([spec])[0].content
    except (KeyError, TypeError, ValueError):  # UserError is a ValueError: the log asks for what we do not have
        return None
    lines = enumerate(map(json.loads, content.splitlines()), start=1)
    twin = assemble(f"twin of {run.name}", chunks(lines, _never))
    mine, theirs = run.observations, twin.observations
    count = len(mine) if run.onset is None else int((mine.step < run.onset).sum())
    same = np.array_equal(mine.step[:count], theirs.step[:count]) and all(
        np.array_equal(mine[name][:count], theirs[name][:count], equal_nan=True)
        for name in ("training_loss", "validation_loss", "sigma_sq", "lambda")
    )
    return twin if same else None


def _never(line: int, message: str) -> None:
    raise AssertionError(f"a log that was just made is damaged in line {line}: {message}")


# ---------------------------------------------------------------------------------------------------------------------
# Drawing
# ---------------------------------------------------------------------------------------------------------------------


def draw(ev: Evaluator, name: str = "", footnote: str = "") -> Drawing:
    """The figure: the whole run on the left, the time around onset and failure on the right."""
    chosen = choose(ev, name)
    if chosen is None:
        reason = "Not drawn: no run of these logs diverged or lost its numbers after a known onset."
        return Drawing(NAME, TITLE, reason, rendered(_nothing(reason, footnote)))
    run, truth, why = chosen
    twin, origin = twin_of(run, ev.study.runs)
    watched, healthy = Watched.of(run), None if twin is None else Watched.of(twin)
    drawn = figure(watched, healthy, truth, footnote)
    caption = _caption(watched, healthy, truth, f"{CLOSE_UP_SHOWN} {why} {origin}")
    return Drawing(NAME, TITLE, f"{caption} {LINES}", rendered(drawn))


def draw_several(studies: Mapping[str, Evaluator], name: str = "", footnote: str = "") -> list[Drawing]:
    """One column a study, each the typical failing run around its failure; nothing of a study without one.

    ``name`` chooses the run of the study that has it.
    """
    runs = {study: choose(ev, name if has(ev, name) else "") for study, ev in studies.items()}
    found = {study: item for study, item in runs.items() if item is not None}
    if not found:
        return [draw(next(iter(studies.values())), "", footnote)]
    columns, said = [], {}
    for study, (run, truth, why) in found.items():
        twin, origin = twin_of(run, studies[study].study.runs)
        watched, healthy = Watched.of(run), None if twin is None else Watched.of(twin)
        columns.append((study, watched, healthy, truth))
        said[study] = _caption(watched, healthy, truth, f". {why} {origin}")
    missing = [f"{heading(study)}: no run diverged after a known onset." for study in runs if study not in found]
    shown = "From shortly before the onset to shortly after the failure."
    caption = " ".join([style.abreast(found), shown, LINES, by_study(said), *missing])
    return [Drawing(NAME, TITLE, caption, rendered(several(columns, footnote)))]


def has(ev: Evaluator, name: str) -> bool:
    """Whether the study has a run of that name."""
    return any(run.name == name.removesuffix(".jsonl") for run in ev.study.runs)


@style.styled
def several(columns: Sequence[tuple[str, Watched, Watched | None, Truth]], footnote: str = "") -> Figure:
    """The figure of :func:`draw_several`."""
    made = style.new_figure(HEIGHT_IN + 0.35)
    axes = made.subplots(len(ROWS), len(columns), sharex="col", squeeze=False, height_ratios=HEIGHTS)
    for column, (study, watched, twin, truth) in enumerate(columns):
        limits = _close_up(truth) or (0.0, _last_step(watched, twin, truth))
        _column(list(axes[:, column]), watched, twin, truth, limits)
        for row, ax in enumerate(axes[:, column]):
            title = f"{study}: {watched.run.model_type}, {watched.run.fault.replace('_', ' ').lower()}"
            style.letter(ax, len(columns) * row + column, "" if row else style.broken(title, 44))
            if column:
                ax.set_ylabel("")
                ax.tick_params(axis="y", labelleft=True)
        axes[-1, column].xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    made.align_ylabels(axes)
    with_twin = next((column for column in columns if column[2] is not None), columns[0])
    handles = _legend(*with_twin[1:])[:6]
    handles += [Line2D([], [], label=MARK_TITLES[mark], **look) for mark, look in MARKS.items()]
    made.legend(handles=handles, loc="outside upper left", ncols=4, columnspacing=1.2)
    style.footnote(made, footnote)
    return made


@style.styled
def figure(watched: Watched, twin: Watched | None, truth: Truth, footnote: str = "") -> Figure:
    """The figure of :func:`draw`."""
    close_up = _close_up(truth)
    made = style.new_figure(HEIGHT_IN)
    axes = made.subplots(
        len(ROWS), 2 if close_up else 1, sharex="col", squeeze=False, height_ratios=HEIGHTS,
        width_ratios=(1.5, 1.0) if close_up else None,
    )  # fmt: skip
    for column in range(axes.shape[1]):
        limits = close_up if column else (0.0, _last_step(watched, twin, truth))
        assert limits is not None
        _column(list(axes[:, column]), watched, twin, truth, limits)
        for row, ax in enumerate(axes[:, column]):
            if column:
                ax.set_ylabel("")
                ax.tick_params(axis="y", labelleft=True)
            style.letter(ax, 2 * row + column if axes.shape[1] == 2 else row)
    style.letter(axes[0, 0], 0, "the whole run; loss: thin training, thick validation")
    if close_up:
        style.letter(axes[0, 1], 1, "around the failure")
        axes[-1, 1].xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    made.align_ylabels(axes)
    made.legend(handles=_legend(watched, twin, truth), loc="outside upper left", ncols=4, columnspacing=1.2)
    style.footnote(made, footnote)
    return made


def _column(
    axes: Sequence[Axes], watched: Watched, twin: Watched | None, truth: Truth, limits: tuple[float, float]
) -> None:
    """All panels of a run over the same steps."""
    for row, ax in zip(ROWS, axes, strict=True):
        _panel(ax, row, watched, twin, limits)
        for mark, step in _marks(watched, truth).items():
            if step is not None:
                ax.axvline(step, **MARKS[mark])
    style.steps_axis(axes[-1])
    axes[-1].set_xlim(*limits)


def _close_up(truth: Truth) -> tuple[float, float] | None:
    if truth.onset is None or truth.failure_step is None:
        return None
    margin = max(CLOSE_UP * (truth.failure_step - truth.onset), 20.0)
    return max(truth.onset - margin, 0.0), truth.failure_step + margin


def _last_step(watched: Watched, twin: Watched | None, truth: Truth) -> float:
    return float(max(watched.step[-1], truth.horizon, 1, *([] if twin is None else [twin.step[-1]])))


def _marks(watched: Watched, truth: Truth) -> dict[str, int | None]:
    return {
        "onset": truth.onset,
        "failure": truth.failure_step,
        "first alert": watched.first_alert,
        "first warning": watched.first_warning,
    }


def _panel(ax: Axes, row: str, watched: Watched, twin: Watched | None, limits: tuple[float, float]) -> None:
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
        for (_, sign, color, line), values in zip(style.SIGNALS, watched.value[1:], strict=True):
            _line(ax, watched, np.asarray(values), limits, color=color, linestyle=line, label=f"{sign}′", linewidth=1.0)
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
        else:
            style.plain_numbers(ax, "y", bins=3)


def _line(
    ax: Axes, item: Watched, values: NDArray[np.float64], limits: tuple[float, float], **look: Any
) -> NDArray[np.float64]:
    """Draw what lies within the limits, and one record on either side; returns the values drawn."""
    low = max(int(np.searchsorted(item.step, limits[0])) - 1, 0)
    high = int(np.searchsorted(item.step, limits[1], side="right")) + 1
    shown = np.where(np.isinf(values[low:high]), np.nan, np.clip(values[low:high], -LARGEST, LARGEST))
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


def _legend(watched: Watched, twin: Watched | None, truth: Truth) -> list[Line2D]:
    handles = [Line2D([], [], label="run", **RUN_LOOK)]
    handles.append(Line2D([], [], label="its twin" if twin else "no twin at hand", **TWIN_LOOK))
    handles.append(Line2D([], [], color=style.GREY, linewidth=1.0, linestyle=(0, (6, 2)), label="threshold of R"))
    handles += [
        Line2D([], [], color=color, linestyle=line, label=f"{sign}′ of the run")  # type: ignore[arg-type]
        for _, sign, color, line in style.SIGNALS
    ]
    missing = {"onset": "no fault", "failure": "no failure", "first alert": "no alert", "first warning": "no warning"}
    for mark, step in _marks(watched, truth).items():
        protocol = {"first alert": " (paper)", "first warning": " (strict)"}.get(mark, "")
        label = f"{missing[mark]}{protocol}" if step is None else f"{MARK_TITLES[mark]}: {step:,}"
        handles.append(Line2D([], [], label=label, **({**MARKS[mark], "alpha": 0.0} if step is None else MARKS[mark])))
    return handles


@style.styled
def _nothing(reason: str, footnote: str) -> Figure:
    made = style.new_figure(1.6)
    ax = made.subplots()
    ax.set_axis_off()
    style.say(ax, style.broken(reason, 90))
    style.footnote(made, footnote)
    return made


LINES = (
    "Losses: thin and pale training, thick validation (latest known). λ, σ² and ΔL as logged; normalised over their "
    "own history; R with the published weights and threshold, recomputed from the log. A value that is not finite is "
    "not drawn."
)


def _caption(watched: Watched, twin: Watched | None, truth: Truth, how: str) -> str:
    run = watched.run
    kind = {"NONE": "no fault"}.get(run.fault, f"{run.fault}, severity {run.severity}")
    parts = [
        f"Run `{run.name}` ({run.model_type}, {kind}), {len(run.observations):,} records{how}",
    ]
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
            "No episode began between onset and failure, so that the strict protocol counts it as missed."
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
