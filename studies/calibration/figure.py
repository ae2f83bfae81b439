"""Figure: each number of the simulated study over the real one; on the diagonal they are equal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Transform, offset_copy

from rmetric.detectors import DETECTORS
from rmetric.reporting import style
from rmetric.reporting.style import Drawing, rendered
from studies.calibration.comparison import Compared, Comparison
from studies.captions import short_title

NAME, TITLE = "figure_8_simulated_vs_real", "Figure 8: Simulated against real"
SIGNAL_TITLES = {
    "training_loss": "training loss",
    "grad_norm": "gradient norm",
    "update_rms": "size of the update",
    "sigma_sq": "gradient variance σ²",
    "step_time_s": "step time",
}
COLORS = (style.BLUE, style.VERMILION, style.GREEN, style.ORANGE, style.PURPLE, style.SKY, style.GREY)
MARKERS = "oD^vsP<X>*hp"
HOLLOW_FROM = len(COLORS)
"""Names from which every other round of the colours is hollow."""
SPREAD_PT = 3.6
"""Distance of points that fall together, which are drawn beside each other."""
GOLDEN_SHARE = 0.381966
"""Of all directions, the share by which each point is turned against the last one: no two fall together."""
AT_AN_END = 0.08
"""Share of the range nearer than which to an end points are spread inwards alone."""
LEGEND_COLUMNS = 4
UNIT_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
ACRONYMS = ("LR", "GQA", "RMS")
SEVERITY_FILL = {"low": 0.25, "medium": 0.6, "high": 1.0}


def draw(comparison: Comparison) -> Drawing:
    simulated, real = comparison.runs
    caption = (
        "Each point is one number of the real runs (across, with its 95 % interval) and of the simulated ones (up); on "
        f"the line they are equal. (a) Spread of the noise of each signal in records of {comparison.every} steps. "
        "(b) Share of the runs that fail and (c) median steps from onset to failure, by fault and severity (the darker "
        "the more severe). (d) Strict F1 of the detectors at one false alarm per 10,000 healthy steps. In (b) to (d) "
        "points that fall together are drawn beside each other, with their intervals and within the range. "
        f"{simulated:,} simulated runs; {real:,} real ones of the half that nothing was fitted to."
    )
    return Drawing(NAME, TITLE, caption, rendered(figure(comparison)))


@style.styled
def figure(comparison: Comparison) -> Figure:
    names = [row.of[0] for row in comparison.detectors]
    titles = {name: short_title(DETECTORS[name].title) if name in DETECTORS else name for name in names}
    drawn = style.new_figure(6.6 + 0.165 * -(-len(titles) // LEGEND_COLUMNS))
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
        if rows is spread and names:
            ax.legend(handles=_handles(names, SIGNAL_TITLES), loc="best", handletextpad=0.1)
    if titles:  # too many for a panel; below (d), as those of (b) stand above it
        drawn.legend(handles=_handles([*titles], titles), loc="outside lower left", ncols=LEGEND_COLUMNS,
                     title="(d)", alignment="left", handletextpad=0.1, columnspacing=1.0)  # fmt: skip
    if failed:
        faults_shown = {row.of[0]: fault_title(row.of[0]) for row in failed}
        drawn.legend(handles=_handles([*faults_shown], faults_shown), loc="outside upper right", ncols=4,
                     title="(b) and (c)", alignment="left", handletextpad=0.1, columnspacing=1.0)  # fmt: skip
    return drawn


def fault_title(name: str) -> str:
    """A fault in words.

    >>> fault_title("LR_SPIKE")
    'LR spike'
    """
    return " ".join(word if word in ACRONYMS else word.lower() for word in name.split("_"))


def _look(place: int) -> dict[str, Any]:
    """Colour, marker, and whether it is hollow: colours come again, but never with the marker of a neighbour."""
    color = COLORS[place % len(COLORS)]
    ground = "white" if place // HOLLOW_FROM % 2 else color
    return {"color": color, "marker": MARKERS[place % len(MARKERS)], "markerfacecolor": ground, "markersize": 4.8}


def _handles(names: Sequence[str], titles: Mapping[str, str]) -> list[Line2D]:
    return [
        Line2D([], [], linestyle="none", label=titles.get(name, name), **_look(place))
        for place, name in enumerate(names)
    ]


def _beside(ax: Axes, x: float, y: float, ends: tuple[float, float], taken: int) -> Transform:
    """Place of a point where so many have been drawn already: around the first, evenly, and not beyond the range."""
    inwards = [_inwards(ax, value, ends) for value in (x, y)]
    share = 0.5 ** sum(map(abs, inwards))  # of all directions
    angle = math.atan2(inwards[1], inwards[0]) + math.tau * share * (GOLDEN_SHARE * taken % 1.0 - 0.5)
    radius = SPREAD_PT * math.sqrt(taken / share)
    figure = ax.get_figure(root=True)
    return offset_copy(ax.transData, figure, radius * math.cos(angle), radius * math.sin(angle), units="points")


def _inwards(ax: Axes, value: float, ends: tuple[float, float]) -> int:
    """1 at the lower end of the range, −1 at the upper one, else 0; both axes have the same scale."""
    low, high, at = ax.xaxis.get_transform().transform([*ends, value]).tolist()
    share = (at - low) / (high - low) if high > low else 0.5
    return (share < AT_AN_END) - (share > 1.0 - AT_AN_END)


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
    else:
        ax.set(xlim=(-0.06, 1.06), ylim=(-0.06, 1.06), xticks=UNIT_TICKS, yticks=UNIT_TICKS)
    ax.plot([low, high], [low, high], color=style.GREY, linewidth=0.8, zorder=1)
    taken: Counter[tuple[str, str]] = Counter()
    for row in known:
        x, y = row.real.value, row.simulated.value
        look = _look(names.index(row.of[0]))
        place = (f"{x:.1e}", f"{y:.1e}")
        beside = _beside(ax, x, y, (low, high), taken[place])
        taken[place] += 1
        alpha = SEVERITY_FILL.get(row.of[-1], 1.0)
        if row.real.has_interval:
            ax.plot([row.real.low, row.real.high], [y, y], color=look["color"], alpha=0.3, linewidth=0.8, zorder=2,
                    transform=beside)  # fmt: skip
        ax.plot([x], [y], alpha=alpha, linestyle="none", zorder=3, transform=beside, **look)
