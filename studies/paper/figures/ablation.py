"""Figure 5: which signals carry the R-Metric, and whether its weights travel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rmetric.evaluation.ablation import Variant, ablation, transfers
from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.protocols import PROTOCOLS
from rmetric.evaluation.scores import Score
from rmetric.metric import RMetric
from rmetric.reporting import style
from rmetric.reporting.style import Drawing, rendered
from rmetric.signals import Weights
from studies import captions

NAME, TITLE = "figure_5_ablation_transfer", "Figure 5: Ablation and transfer"
ROW_HEIGHT_IN = 3.5
WIDTHS = (1.0, 1.0, 1.25)
ALONE = {"λ alone": Weights(1.0, 0.0, 0.0), "σ² alone": Weights(0.0, 1.0, 0.0), "ΔL alone": Weights(0.0, 0.0, 1.0)}
KINDS = (("published", style.VERMILION, "o", -0.16), ("refitted", style.BLUE, "s", 0.16))


def draw(studies: Mapping[str, Evaluator], footnote: str = "") -> Drawing:
    """Draw the figure, one row of panels a study."""
    found = {study: bars(ev) for study, ev in studies.items()}
    return Drawing(NAME, TITLE, _caption(studies, found), rendered(figure(studies, found, footnote)))


def bars(ev: Evaluator) -> list[Variant]:
    """The variants of Table 5b, and each signal alone (published: its row of Table 3)."""
    alone = [Variant.of(ev, name, weights, protocol) for protocol in PROTOCOLS for name, weights in ALONE.items()]
    return [*ablation(ev), *alone]


@style.styled
def figure(studies: Mapping[str, Evaluator], found: Mapping[str, Sequence[Variant]], footnote: str = "") -> Figure:
    """Ablation under either protocol, transfer under the strict one; one row a study."""
    made = style.new_figure(0.4 + ROW_HEIGHT_IN * len(studies))
    axes = made.subplots(len(studies), 3, width_ratios=WIDTHS, squeeze=False)
    for row, (study, ev) in enumerate(studies.items()):
        _panels(axes[row], ev, found[study], study, 3 * row)
    made.legend(handles=_handles(), loc="outside upper left", ncols=2)
    reasons = list(dict.fromkeys(reason for each in found.values() for reason in undefined(each)))
    style.footnote(made, " ".join(filter(None, [f"n/a: {'; '.join(reasons)}." if reasons else "", footnote])))
    return made


def _panels(axes: Sequence[Axes], ev: Evaluator, found: Sequence[Variant], study: str, first: int) -> None:
    """Ablation under either protocol and transfer; ``first`` is the number of the first panel's letter."""
    variants = _ordered(found)
    for index, (ax, protocol) in enumerate(zip(axes, ("strict", "paper"), strict=False)):
        _ablation(ax, [bar for bar in found if bar.protocol == protocol], variants, names=index == 0)
        style.letter(ax, first + index, f"{study}, {protocol}" if study else f"{protocol} protocol")
    _transfer(axes[2], ev)
    style.letter(axes[2], first + 2, f"{study}, transfer, strict: F1" if study else "transfer, strict: F1")


def _handles() -> list[Line2D]:
    return [
        Line2D([], [], color=color, marker=marker, linewidth=1.2, label=label)
        for (_, color, marker, _), label in zip(
            KINDS,
            (f"published threshold {RMetric.paper().threshold:g}, all runs", "fitted threshold, held-out half"),
            strict=True,
        )
    ]


def undefined(found: Sequence[Variant]) -> list[str]:
    """Why some scores are not there, each reason once."""
    reasons = [bar.published.reason for bar in found if not bar.published.defined]
    reasons += [_held_out(bar.refitted.reason) for bar in found if not bar.refitted.defined]
    return list(dict.fromkeys(reasons))


def _held_out(reason: str) -> str:
    return reason if "half" in reason else f"{reason} in the held-out half"


def _ordered(found: Sequence[Variant]) -> list[str]:
    names = list(dict.fromkeys(bar.name for bar in found))
    last = [name for name in names if name.startswith(("equal", "fitted"))]
    return [name for name in names if name not in last] + last


def _ablation(ax: Axes, found: Sequence[Variant], variants: Sequence[str], *, names: bool) -> None:
    by_name = {bar.name: bar for bar in found}
    for row, variant in enumerate(variants):
        for kind, color, marker, offset in KINDS:
            score: Score = getattr(by_name[variant], kind) if variant in by_name else Score.undefined("not fitted")
            if not score.defined:
                ax.text(0.02, row + offset, "n/a", va="center", color=color)
                continue
            if score.has_interval:
                ax.plot([score.low, score.high], [row + offset] * 2, color=color, linewidth=1.2)
            ax.plot(score.value, row + offset, marker=marker, color=color, linestyle="none", clip_on=False)
    ax.set_xlim(-0.03, 1.02)
    ax.set_ylim(len(variants) - 0.5, -0.5)
    ax.set_yticks(range(len(variants)), variants if names else [""] * len(variants))
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("F1 (0 to 1)")
    ax.set_ylabel("weights of the R-Metric" if names else "")
    ax.grid(visible=True, axis="x")
    ax.set_xticks([0.0, 0.25, 0.5, 0.75, 1.0], ["0", "", "0.5", "", "1"])


def _transfer(ax: Axes, ev: Evaluator) -> None:
    score = {(item.source, item.target): item.transferred for item in transfers(ev) if item.protocol == "strict"}
    names = list(dict.fromkeys(source for source, _ in score))
    ax.set_xlabel("scored on (other half)")
    ax.set_ylabel("weights fitted on")
    values = pd.DataFrame([[score[source, target].value for target in names] for source in names], names, names)
    if values.isna().to_numpy().all():
        reasons = {_held_out(item.reason) for item in score.values()}
        style.say(ax, style.broken("not defined: " + "; ".join(sorted(reasons)), 30))
        ax.set_xticks([])
        ax.set_yticks([])
        return
    texts = np.array([[_cell(score[source, target]) for target in names] for source in names])
    pale_to_dark = LinearSegmentedColormap.from_list("pale to dark", ["#FFFFFF", style.BLUE])
    sns.heatmap(values, ax=ax, annot=texts, fmt="", cmap=pale_to_dark, vmin=0.0, vmax=1.0, cbar=False, linewidths=0.5,
                linecolor="#BBBBBB", square=True, annot_kws={"fontsize": 8})  # fmt: skip
    style.legible(ax)
    ax.set_xlabel("scored on (other half)")
    ax.set_ylabel("weights fitted on")
    short = ["-\n".join(name.rsplit("-", 1)) for name in names]
    ax.set_xticks(ax.get_xticks(), short, rotation=0)
    ax.set_yticks(ax.get_yticks(), short, rotation=0)
    ax.tick_params(length=0)


def _cell(score: Score) -> str:
    if not score.defined:
        return "n/a"
    interval = f"\n{score.low:.2f}–{score.high:.2f}" if score.has_interval else ""
    return f"{score.value:.2f}{interval}"


def _caption(studies: Mapping[str, Evaluator], found: Mapping[str, Sequence[Variant]]) -> str:
    several = len(studies) > 1
    draws = next(iter(studies.values())).draws
    reasons = {study: undefined(each) for study, each in found.items()}
    parts = [
        *([style.stacked(studies)] if several else []),
        f"{'Left and middle:' if several else '(a, b)'} F1 of the R-Metric with the paper's weights, without each "
        f"signal, with equal and with fitted weights (all summing to {sum(Weights()):g}: Table 5b), and of each signal "
        f"alone (between 0 and 1: Table 3). Circles: at the published threshold {RMetric.paper().threshold:g}, all "
        "runs; squares: at the threshold of highest F1 on the fit half (odd repetition or seed), scored on the other "
        f"half. {'Right:' if several else '(c)'} F1 under the strict protocol with weights and threshold fitted on the "
        "fit half of one architecture and scored on the other half of another (Table 7). Lines, and the second line of "
        f"a cell: 95 % bootstrap intervals over runs ({draws:,} resamples; exact ones where none or all were hit); "
        "fits are taken as given.",
        captions.by_study({study: f"n/a: {'; '.join(each)}." if each else "" for study, each in reasons.items()}),
        captions.by_study({study: captions.traced(ev) for study, ev in studies.items()}),
        captions.BOTH,
        captions.by_study(
            {
                study: f"All: {captions.runs(ev)} Score half: {captions.runs(ev, ev.halves.score)}"
                for study, ev in studies.items()
            }
        ),
    ]
    return " ".join(filter(None, parts))
