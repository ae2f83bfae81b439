"""Figure: each number of the simulated study over the real one; on the diagonal they are equal."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rmetric.reporting import style
from rmetric.reporting.style import Drawing, rendered
from studies.calibration.comparison import Compared, Comparison

NAME, TITLE = "figure_8_simulated_vs_real", "Figure 8: Simulated against real"
COLORS = (style.BLUE, style.VERMILION, style.GREEN, style.ORANGE, style.PURPLE, style.SKY, style.GREY)
MARKERS = "oD^vsP<X>*hp"
SEVERITY_FILL = {"low": 0.25, "medium": 0.6, "high": 1.0}


def draw(comparison: Comparison) -> Drawing:
    """The figure."""
    simulated, real = comparison.runs
    caption = (
        "Each point is one number of the real runs (across, with its 95 % interval) and of the simulated ones (up); on "
        f"the line they are equal. (a) Spread of the noise of each signal in records of {comparison.every} steps. "
        "(b) Share of the runs that fail and (c) median steps from onset to failure, by fault and severity (the darker "
        "the more severe). (d) Strict F1 of the detectors at one false alarm per 10,000 healthy steps. "
        f"{simulated:,} simulated runs; {real:,} real ones of the half that nothing was fitted to."
    )
    return Drawing(NAME, TITLE, caption, rendered(figure(comparison)))


@style.styled
def figure(comparison: Comparison) -> Figure:
    """Four panels."""
    drawn = style.new_figure(6.4)
    panels = drawn.subplots(2, 2).ravel().tolist()
    spread = [row for row in comparison.noise if row.statistic == "standard deviation"]
    failed, waits = ([row for row in comparison.faults if row.statistic == name] for name in ("failed", "incubation"))
    content = (
        ("noise, standard deviation of the logarithm", spread, True),
        ("share of runs that fail", failed, False),
        ("incubation, steps", waits, True),
        ("strict F1 of detectors", comparison.detectors, False),
    )
    for index, (ax, (title, rows, logarithmic)) in enumerate(zip(panels, content, strict=True)):
        style.letter(ax, index, title)
        faults = rows is failed or rows is waits  # these share the colours, and the legend below
        names = list(dict.fromkeys(row.of[0] for row in (failed if faults else rows)))
        _panel(ax, rows, logarithmic, names)
        if rows is comparison.detectors and names:  # too many for the panel
            drawn.legend(handles=_handles(names), fontsize=6, loc="outside upper center", ncols=5, title="(d)")
        elif names and not faults:
            ax.legend(handles=_handles(names), fontsize=5, loc="best", ncols=2 if len(names) > 6 else 1)
    if failed:
        names = list(dict.fromkeys(row.of[0] for row in failed))
        drawn.legend(handles=_handles(names), fontsize=6, loc="outside lower center", ncols=4, title="(b), (c)")
    return drawn


def _look(place: int) -> tuple[str, str]:
    return COLORS[place % len(COLORS)], MARKERS[place % len(MARKERS)]


def _handles(names: Sequence[str]) -> list[Line2D]:
    looks = [_look(place) for place in range(len(names))]
    return [
        Line2D([], [], color=color, marker=marker, markersize=4.5, linestyle="none", label=name)
        for name, (color, marker) in zip(names, looks, strict=True)
    ]


def _panel(ax: Axes, rows: Sequence[Compared], logarithmic: bool, names: Sequence[str]) -> None:
    known = [row for row in rows if row.simulated.defined and row.real.defined]
    if logarithmic:
        known = [row for row in known if row.simulated.value >= 0.0 and row.real.value >= 0.0]
    ax.set_xlabel("real")
    ax.set_ylabel("simulated")
    if not known:
        style.say(ax, "nothing to compare")
        return
    ends = [value for row in known for value in (row.simulated.value, row.real.value)]
    low, high = (min(ends), max(ends)) if logarithmic else (0.0, 1.0)
    if logarithmic:
        linear = min((end for end in ends if end > 0.0), default=1.0)
        for name in ("x", "y"):
            style.log_axis(ax, name, linthresh=linear)
    ax.plot([low, high], [low, high], color=style.GREY, linewidth=0.8, zorder=1)
    for row in known:
        x, y = row.real.value, row.simulated.value
        color, marker = _look(names.index(row.of[0]))
        alpha = SEVERITY_FILL.get(row.of[-1], 1.0)
        if row.real.has_interval:
            ax.plot([row.real.low, row.real.high], [y, y], color=color, alpha=0.3, linewidth=0.8, zorder=2)
        ax.plot([x], [y], marker, color=color, alpha=alpha, markersize=4.5, linestyle="none", zorder=3)
