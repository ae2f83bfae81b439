"""The sensitivity map: bit × stage × kernel, coloured by what came of the flips."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from rmetric.reporting import style
from rmetric.reporting.style import Drawing, rendered
from studies.sdc.outcome import BIT_ORDER, DEFINITIONS, OUTCOMES
from studies.sdc.plan import STAGES

NAME, TITLE = "sdc_sensitivity_map", "Silent data corruption: sensitivity map"
COLORS = {
    "benign": "#DADADA",
    "spike": style.SKY,
    "diverged": style.ORANGE,
    "non_finite": style.BLACK,
    "dead": style.VERMILION,
}
HATCHES = {"benign": "", "spike": "///", "diverged": "xxx", "non_finite": "", "dead": "..."}
LABELS = {"non_finite": "NaN"}
KERNELS = (
    "embedding", "norm", "query", "key", "value", "query, key, value", "scores", "mixing", "output projection",
    "router", "mlp", "experts", "lm_head", "other",
)  # fmt: skip
"""Kernels from the bottom of a model to its top."""


def draw(frame: pd.DataFrame, about: str) -> Drawing:
    caption = (
        "Single flipped bits: for each stage, above, the share of outcomes of each bit; below, a cell a bit and kernel "
        "with the outcomes of its flips side by side. An empty cell was not hit. s: sign, e: exponent, m: mantissa "
        f"bits, the highest first; memory and payload are float32 in any campaign. {about} {DEFINITIONS}"
    )
    return Drawing(NAME, TITLE, caption, rendered(figure(frame)))


@style.styled
def figure(frame: pd.DataFrame) -> Figure:
    """Two stages side by side, two rows of them; each has bars above its cells."""
    bits = [bit for bit in BIT_ORDER if bit in set(frame["bit_name"])]
    stages = [stage for stage in STAGES if stage in set(frame["stage"])]
    kernels = {stage: _kernels(frame[frame["stage"] == stage]) for stage in stages}
    rows = [stages[index : index + 2] for index in range(0, len(stages), 2)]
    heights = [part for row in rows for part in (3.0, float(max(len(kernels[stage]) for stage in row)))]
    made = style.new_figure(0.6 + 0.19 * sum(heights) + 0.35 * len(rows))
    axes = made.subplots(len(heights), 2, height_ratios=heights, squeeze=False)
    for index, ax in enumerate(axes.flat):
        ax.set_visible(index // 4 * 2 + index % 2 < len(stages))
    for index, stage in enumerate(stages):
        part = frame[frame["stage"] == stage]
        bars, cells = axes[2 * (index // 2), index % 2], axes[2 * (index // 2) + 1, index % 2]
        style.letter(bars, index, f"{stage}: {len(part)} flips, {int(part['harmful'].sum())} harmful")
        _bars(bars, part, bits)
        _cells(cells, part, bits, kernels[stage])
    handles = [
        Patch(facecolor=COLORS[name], hatch=HATCHES[name], edgecolor="white", label=LABELS.get(name, name))
        for name in OUTCOMES
    ]
    made.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return made


def _kernels(part: pd.DataFrame) -> list[str]:
    return sorted(part["kernel"].unique(), key=lambda name: KERNELS.index(name) if name in KERNELS else len(KERNELS))


def _bars(ax: Axes, part: pd.DataFrame, bits: list[str]) -> None:
    counts = pd.crosstab(part["bit_name"], part["outcome"]).reindex(index=bits, columns=[*OUTCOMES], fill_value=0)
    shares = counts.div(counts.sum(axis=1).replace(0, np.nan), axis=0).fillna(0.0)
    bottom = np.zeros(len(bits))
    for name in reversed(OUTCOMES):
        height = shares[name].to_numpy(dtype=np.float64)
        ax.bar(range(len(bits)), height, 0.85, bottom, color=COLORS[name], hatch=HATCHES[name], edgecolor="white")
        bottom = bottom + height
    ax.set_xlim(-0.5, len(bits) - 0.5)
    ax.set_ylim(0.0, 1.0)
    ax.set_yticks([0.0, 1.0], ["0", "1"])
    ax.set_xticks([])
    ax.set_ylabel("share")


def _cells(ax: Axes, part: pd.DataFrame, bits: list[str], kernels: list[str]) -> None:
    for (kernel, bit), group in part.groupby(["kernel", "bit_name"]):
        outcomes = sorted(group["outcome"], key=OUTCOMES.index)
        left, top, width = bits.index(str(bit)) - 0.46, kernels.index(str(kernel)), 0.92 / len(outcomes)
        for place, name in enumerate(outcomes):
            ax.bar(
                left + (place + 0.5) * width, 0.84, width, top - 0.42,
                color=COLORS[name], hatch=HATCHES[name], edgecolor="white", linewidth=0.3,
            )  # fmt: skip
    ax.set_xlim(-0.5, len(bits) - 0.5)
    ax.set_ylim(-0.5, len(kernels) - 0.5)
    ax.set_yticks(range(len(kernels)), kernels)
    ax.set_xticks(range(len(bits)), bits, rotation=90)
    ax.set_xlabel("bit")
    ax.tick_params(length=0)
    for place in range(len(kernels) - 1):
        ax.axhline(place + 0.5, color="#EEEEEE", linewidth=0.5, zorder=0)
