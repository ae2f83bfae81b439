"""Figure: Training Overhead Ratio by size of the cluster, and what warnings and repair add to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.scores import Score
from rmetric.reporting import style
from rmetric.reporting.style import Drawing, rendered
from studies.cluster.monte_carlo import JobOutcome
from studies.cluster.policies import BOUND, CHECKPOINTS, WITH_REPAIR, WITH_WARNINGS, RepairEffect, measured_warnings
from studies.cluster.report import by_size, caption
from studies.live_results import LiveResults

NAME, TITLE = "figure_9_overhead_ratio", "Figure 9: Training Overhead Ratio by size of the cluster"
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
LOOKS = {
    CHECKPOINTS: style.Look(style.BLACK, "-", "o"),
    WITH_WARNINGS: style.Look(style.BLUE, "--", "s"),
    WITH_REPAIR: style.Look(style.VERMILION, (0, (5, 1.5, 1, 1.5)), "D"),
    BOUND: style.Look(style.GREY, (0, (1, 1.2)), "^"),
}
Known = Mapping[int, Mapping[str, JobOutcome]]


def draw(ev: Evaluator, live: LiveResults | None = None) -> Drawing:
    found, repair = measured_warnings(ev), RepairEffect.of((live or LiveResults()).corruption)
    text = (
        "(a) TOR of each policy; (b) what it has beyond checkpoints alone on the same failures, in pairs. Bands: what "
        f"95 % of the replicates lie in. As Table 17: {caption(found, repair)}"
    )
    return Drawing(NAME, TITLE, text, rendered(figure(by_size(found, repair, SIZES, ev.seed))))


@style.styled
def figure(known: Known) -> Figure:
    """Two panels over the number of GPUs."""
    drawn = style.new_figure(2.9)
    left, right = drawn.subplots(1, 2)
    _panel(left, known, LOOKS, lambda outcomes, name: outcomes[name].tor)
    beyond = {name: look for name, look in LOOKS.items() if name != CHECKPOINTS}
    _panel(right, known, beyond, lambda outcomes, name: outcomes[name].gained_points(outcomes[CHECKPOINTS]))
    style.letter(left, 0, "Training Overhead Ratio")
    style.letter(right, 1, "gained over checkpoints (percentage points)")
    left.set_ylabel("T_optimal / T_observed")
    left.yaxis.set_major_formatter("{x:.2f}")
    right.set_ylabel("points of TOR")
    right.axhline(0.0, color=LOOKS[CHECKPOINTS].color, linewidth=0.8, zorder=1)
    left.legend(loc="lower left")
    return drawn


def _panel(
    ax: Axes,
    known: Known,
    looks: Mapping[str, style.Look],
    score_of: Callable[[Mapping[str, JobOutcome], str], Score],
) -> None:
    for name, look in looks.items():
        scores = {gpus: score_of(outcomes, name) for gpus, outcomes in known.items()}
        defined = {gpus: score for gpus, score in scores.items() if score.defined}
        if not defined:
            continue
        low, high = ([getattr(score, end) for score in defined.values()] for end in ("low", "high"))
        ax.fill_between([*defined], low, high, color=look.color, alpha=0.13, linewidth=0)
        ax.plot([*defined], [score.value for score in defined.values()], color=look.color, linestyle=look.line,
                marker=look.marker, markersize=3.2, label=name)  # fmt: skip
    style.log_axis(ax, "x")
    style.plain_numbers(ax, "y")
    ax.grid(visible=True, axis="y")
    ax.set_xlabel("GPUs")
